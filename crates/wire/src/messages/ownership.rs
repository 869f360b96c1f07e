//! Which programs of a history the gateway runs, and which ones the provider ran itself.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields;
use crate::allowed_callers::ProgramDeclaration;
use crate::seal::Sealer;

/// The gateway runs programs with ids that it made. If the client declares programs, it also runs all others that the
/// provider did not run itself.
pub(super) struct ProgramOwnership {
    declaration: ProgramDeclaration,
    /// Ids of programs that the provider ran itself, for one of its tools.
    providers: BTreeSet<String>,
}

impl ProgramOwnership {
    pub(super) fn new(messages: &[Value], declaration: ProgramDeclaration) -> ProgramOwnership {
        let mut providers = BTreeSet::new();
        for block in messages.iter().flat_map(fields::blocks).filter(|_| declaration == ProgramDeclaration::Declared) {
            if fields::kind(block) == fields::SERVER_TOOL_USE {
                let program = block.pointer("/caller/tool_id").and_then(Value::as_str);
                providers.extend(program.map(str::to_owned));
            }
            let result = block.get("content").map(fields::kind).unwrap_or_default();
            if result.starts_with("encrypted_") {
                providers.insert(fields::tool_use_id(block).to_owned());
            }
        }
        ProgramOwnership { declaration, providers }
    }

    fn is_declared(&self) -> bool {
        self.declaration == ProgramDeclaration::Declared
    }

    fn owns(&self, program_id: &str) -> bool {
        fields::is_our_program_id(program_id) || self.is_declared() && !self.providers.contains(program_id)
    }

    pub(super) fn is_program(&self, block: &Value) -> bool {
        fields::is_program(block) && self.owns(fields::id(block))
    }

    pub(super) fn is_result(&self, block: &Value) -> bool {
        fields::kind(block) == fields::PROGRAM_RESULT && self.owns(fields::tool_use_id(block))
    }

    /// Whether it is a call of a program, or the block beside it that carries the program's state.
    pub(super) fn is_issued_call(&self, block: &Value) -> bool {
        let is_of_program =
            || Sealer::is_own_id(fields::id(block)) || self.is_declared() && fields::is_called_by_program(block);
        fields::kind(block) == fields::TOOL_USE && is_of_program() || fields::carried_state(block).is_some()
    }

    pub(super) fn is_ours(&self, block: &Value) -> bool {
        self.is_issued_call(block)
            || self.is_program(block)
            || self.is_result(block)
            || fields::is_our_search(block)
            || fields::is_our_server_call(block)
    }
}
