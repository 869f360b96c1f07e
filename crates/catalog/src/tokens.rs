//! Estimates of tokens by bytes, for where no tokenizer is at hand: the models behind the gateway have different ones.

/// Bytes per token, on average, of JSON, TypeScript declarations and English text with the tokenizers in use.
pub const BYTES_PER_TOKEN: usize = 4;

/// A lower bound of [`BYTES_PER_TOKEN`] for declarations, so that a budget of tokens is not exceeded.
pub(crate) const BYTES_PER_TOKEN_MIN: usize = 3;
