//! `when`: the conditions under which a turn answers a request.

use serde_json::Value;

use crate::ScriptFileError;
use crate::script_file::{TomlFields, TomlNode};
use crate::scripted_conversation::{Role, ScriptedConversation};

/// Conditions that must all hold.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    user: Option<String>,
    last: Option<String>,
    after: Option<Role>,
    step: Option<u64>,
    tools: Vec<String>,
    no_tools: Vec<String>,
    model: Option<String>,
    image: Option<String>,
}

const KEYS: [&str; 8] = ["user", "last", "after", "step", "tool", "no_tool", "model", "image"];

impl Conditions {
    pub(crate) fn read(node: TomlNode, path: &str) -> Result<Conditions, ScriptFileError> {
        let mut fields = TomlFields::read(node, path, &KEYS)?;
        let after = fields.take("after").map(|node| {
            let path = fields.path_of("after");
            let wrong = node.wrong(&path, "\"user\", \"tool\", \"assistant\" or \"system\"");
            let role = node.into_text(&path)?;
            Role::ALL.into_iter().find(|known| known.name() == role).ok_or(wrong)
        });
        Ok(Conditions {
            user: fields.text("user")?,
            last: fields.text("last")?,
            after: after.transpose()?,
            step: fields.whole("step", 0..=u64::MAX)?,
            tools: fields.texts("tool")?,
            no_tools: fields.texts("no_tool")?,
            model: fields.text("model")?,
            image: fields.text("image")?,
        })
    }

    /// The conditions that do not hold, as clauses of an error message.
    pub(crate) fn unmet(&self, conversation: &ScriptedConversation<'_>) -> Vec<String> {
        let mut unmet = Vec::new();
        let quoted = |text: &str| Value::from(text).to_string();
        if let Some(wanted) = &self.user
            && !conversation.last_text_of(Role::User).is_some_and(|text| contains(text, wanted))
        {
            unmet.push(format!("the last user message does not contain {}", quoted(wanted)));
        }
        if let Some(wanted) = &self.last
            && !contains(conversation.last_text(), wanted)
        {
            unmet.push(format!("the last message does not contain {}", quoted(wanted)));
        }
        if let Some(wanted) = self.after
            && conversation.last_role() != Some(wanted)
        {
            unmet.push(format!("the last message does not have role '{}'", wanted.name()));
        }
        if let Some(wanted) = self.step
            && conversation.step() != wanted
        {
            let step = conversation.step();
            unmet.push(format!("this is step {step} since the last user message, not {wanted}"));
        }
        for tool in self.tools.iter().filter(|tool| !conversation.offers(tool)) {
            unmet.push(format!("no tool {} is offered", quoted(tool)));
        }
        for tool in self.no_tools.iter().filter(|tool| conversation.offers(tool)) {
            unmet.push(format!("the tool {} is offered", quoted(tool)));
        }
        if let Some(wanted) = &self.model
            && conversation.model() != Some(wanted)
        {
            unmet.push(format!("the model is not {}", quoted(wanted)));
        }
        if let Some(wanted) = &self.image
            && !conversation.last_image().is_some_and(|url| contains(&url, wanted))
        {
            unmet.push(format!("no image has a URL with {}", quoted(wanted)));
        }
        unmet
    }
}

fn contains(text: &str, wanted: &str) -> bool {
    text.to_lowercase().contains(&wanted.to_lowercase())
}
