//! A cache of toolboxes: clients send the same tool list with every request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dacapo_catalog::EffectRules;
use dacapo_lru::LruCache;
use sha2::{Digest, Sha256};

use crate::request::RequestError;
use crate::toolbox::Toolbox;

/// A bounded cache of toolboxes by the JSON that they were read from, so that names, validators, declarations and the
/// search index of a tool list are made once.
///
/// ```
/// use std::sync::Arc;
/// let toolboxes = dacapo_replay::Toolboxes::default();
/// let first = toolboxes.get(r#"[{"name": "add"}]"#).unwrap();
/// assert!(Arc::ptr_eq(&first, &toolboxes.get(r#"[{"name": "add"}]"#).unwrap()));
/// ```
#[derive(Debug)]
pub struct Toolboxes {
    cache: Mutex<LruCache<Arc<Toolbox>>>,
    effects: Arc<EffectRules>,
}

impl Default for Toolboxes {
    fn default() -> Toolboxes {
        Toolboxes::new(256, 64 << 20)
    }
}

impl Toolboxes {
    /// Keeps at most `count_max` toolboxes, made from at most `bytes_max` of JSON.
    pub fn new(count_max: usize, bytes_max: usize) -> Toolboxes {
        Toolboxes { cache: Mutex::new(LruCache::new(count_max, bytes_max)), effects: Arc::default() }
    }

    /// With what an operator has said of tools.
    #[must_use]
    pub fn with_effects(self, effects: impl Into<Arc<EffectRules>>) -> Toolboxes {
        Toolboxes { effects: effects.into(), ..self }
    }

    /// The toolbox of a tool list, given as JSON in any provider's format.
    pub fn get(&self, tools: &str) -> Result<Arc<Toolbox>, RequestError> {
        self.get_for("", tools)
    }

    /// Like [`Toolboxes::get`], in a service for several tenants: what one sent does not hasten a request of another.
    pub fn get_for(&self, tenant: &str, tools: &str) -> Result<Arc<Toolbox>, RequestError> {
        let key = Sha256::digest([Sha256::digest(tenant), Sha256::digest(tools)].concat()).into();
        if let Some(toolbox) = self.cache().get(&key) {
            return Ok(Arc::clone(toolbox));
        }
        // Made outside the lock: others need not wait for a large list.
        let toolbox = Arc::new(Toolbox::read_with(tools, Arc::clone(&self.effects))?);
        drop(self.cache().put(key, Arc::clone(&toolbox), tools.len()));
        Ok(toolbox)
    }

    /// Like [`Toolboxes::get_for`], for a list that the caller knows by a digest of its own, which is another one for
    /// each tenant. Its JSON is written only if it has to be read.
    pub fn get_known(
        &self,
        tenant: &str,
        digest: [u8; 32],
        tools: impl FnOnce() -> String,
    ) -> Result<Arc<Toolbox>, RequestError> {
        if let Some(toolbox) = self.cache().get(&digest) {
            return Ok(Arc::clone(toolbox));
        }
        let tools = tools();
        let toolbox = self.get_for(tenant, &tools)?;
        drop(self.cache().put(digest, Arc::clone(&toolbox), tools.len()));
        Ok(toolbox)
    }

    fn cache(&self) -> MutexGuard<'_, LruCache<Arc<Toolbox>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_comes_again_is_not_read_again() {
        let toolboxes = Toolboxes::new(2, 1_000);
        let first = toolboxes.get(r#"[{"name": "a"}]"#).unwrap();
        assert!(Arc::ptr_eq(&first, &toolboxes.get(r#"[{"name": "a"}]"#).unwrap()));
        assert!(!Arc::ptr_eq(&first, &toolboxes.get_for("ann", r#"[{"name": "a"}]"#).unwrap()));
        let known = toolboxes.get_known("", [1; 32], || r#"[{"name": "a"}]"#.to_owned()).unwrap();
        assert!(Arc::ptr_eq(&known, &toolboxes.get_known("", [1; 32], || unreachable!()).unwrap()));
        assert_eq!(toolboxes.get("[3]").unwrap_err().to_string(), "tools[0]: expected an object, found a number");
    }
}
