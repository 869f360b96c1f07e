//! Stories of programs and their clients, through the public API.

mod client;
mod divergence;
mod forms;
mod habits;
mod hints;
mod limits;
mod lookups;
mod names;
mod pausing;
mod record;
mod requests;
mod stored;
mod values;
mod withdrawn;
