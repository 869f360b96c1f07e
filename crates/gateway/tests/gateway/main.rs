//! The gateway over real HTTP.

mod common;
mod crowd;
mod quirks;
mod scenarios;
mod service;
mod turns;
