//! A callback that gets every request and its reply.

use std::fmt;
use std::sync::Arc;

use dacapo_wire::Wire;
use serde_json::Value;

use crate::ScriptedReply;

type Callback = dyn Fn(Wire, &Value, &ScriptedReply) + Send + Sync;

#[derive(Clone)]
pub(crate) struct ReplyObserver(Arc<Callback>);

impl ReplyObserver {
    pub(crate) fn new(callback: impl Fn(Wire, &Value, &ScriptedReply) + Send + Sync + 'static) -> ReplyObserver {
        ReplyObserver(Arc::new(callback))
    }

    pub(crate) fn notify(&self, wire: Wire, request: &Value, reply: &ScriptedReply) {
        (self.0)(wire, request, reply);
    }
}

impl fmt::Debug for ReplyObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyObserver")
    }
}
