//! Who is told what a script is asked and what it says.

use std::fmt;
use std::sync::Arc;

use dacapo_wire::Wire;
use serde_json::Value;

use super::Reply;

type Watch = dyn Fn(Wire, &Value, &Reply) + Send + Sync;

#[derive(Clone)]
pub(super) struct Watcher(Arc<Watch>);

impl Watcher {
    pub(super) fn new(watch: impl Fn(Wire, &Value, &Reply) + Send + Sync + 'static) -> Watcher {
        Watcher(Arc::new(watch))
    }

    pub(super) fn tell(&self, wire: Wire, request: &Value, reply: &Reply) {
        (self.0)(wire, request, reply);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}
