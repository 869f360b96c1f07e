//! Toolboxes by the text they were made from, because the same tool list arrives with request after request.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::request::RequestError;
use crate::toolbox::Toolbox;

/// A bounded cache: names, validators, declarations and search index of a tool list are made once.
#[derive(Debug)]
pub struct Toolboxes {
    count_max: usize,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    toolboxes: HashMap<[u8; 32], Held>,
    /// By last use, oldest first.
    order: BTreeMap<u64, [u8; 32]>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Held {
    toolbox: Arc<Toolbox>,
    used: u64,
    bytes: usize,
}

impl Default for Toolboxes {
    fn default() -> Toolboxes {
        Toolboxes::new(256, 64 << 20)
    }
}

impl Toolboxes {
    /// Keeps at most `count_max` toolboxes, made from at most `bytes_max` of JSON.
    pub fn new(count_max: usize, bytes_max: usize) -> Toolboxes {
        Toolboxes { count_max, bytes_max, kept: Mutex::default() }
    }

    /// The toolbox of a tool list, given as JSON.
    pub fn get(&self, tools: &str) -> Result<Arc<Toolbox>, RequestError> {
        let key: [u8; 32] = Sha256::digest(tools.as_bytes()).into();
        if let Some(toolbox) = self.kept().touch(&key) {
            return Ok(toolbox);
        }
        // Made outside the lock: others need not wait for a large list.
        let toolbox = Arc::new(Toolbox::read(tools)?);
        self.keep(key, tools.len(), &toolbox);
        Ok(toolbox)
    }

    fn keep(&self, key: [u8; 32], bytes: usize, toolbox: &Arc<Toolbox>) {
        let mut kept = self.kept();
        kept.forget(&key);
        kept.clock += 1;
        let used = kept.clock;
        kept.bytes += bytes;
        kept.order.insert(used, key);
        kept.toolboxes.insert(key, Held { toolbox: Arc::clone(toolbox), used, bytes });
        while kept.toolboxes.len() > self.count_max || kept.bytes > self.bytes_max {
            let Some((_, oldest)) = kept.order.first_key_value().map(|(used, key)| (*used, *key)) else { break };
            kept.forget(&oldest);
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn touch(&mut self, key: &[u8; 32]) -> Option<Arc<Toolbox>> {
        let held = self.toolboxes.get_mut(key)?;
        self.clock += 1;
        self.order.remove(&held.used);
        self.order.insert(self.clock, *key);
        held.used = self.clock;
        Some(Arc::clone(&held.toolbox))
    }

    fn forget(&mut self, key: &[u8; 32]) {
        if let Some(held) = self.toolboxes.remove(key) {
            self.order.remove(&held.used);
            self.bytes -= held.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_comes_again_is_not_read_again_and_old_ones_make_room() {
        let toolboxes = Toolboxes::new(2, 1_000);
        let list = |name: &str| format!(r#"[{{"name": "{name}"}}]"#);
        let first = toolboxes.get(&list("a")).unwrap();
        assert!(Arc::ptr_eq(&first, &toolboxes.get(&list("a")).unwrap()));

        toolboxes.get(&list("b")).unwrap();
        toolboxes.get(&list("a")).unwrap();
        toolboxes.get(&list("c")).unwrap();
        assert!(Arc::ptr_eq(&first, &toolboxes.get(&list("a")).unwrap()), "used last, so kept");

        toolboxes.get(&list(&"long".repeat(400))).unwrap();
        assert!(toolboxes.kept().bytes <= 1_000);
        assert_eq!(toolboxes.get("[3]").unwrap_err().to_string(), "tools[0]: expected an object, found a number");
    }
}
