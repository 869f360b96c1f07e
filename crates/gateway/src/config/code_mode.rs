//! When and how models write programs, as it was configured.

use dacapo_wire::{CodeMode, DefaultCallers};

use crate::options::GatewayOptions;

#[derive(Debug)]
pub(crate) struct CodeModeConfig {
    pub default: CodeMode,
    pub models: Vec<(String, CodeMode)>,
    pub declarations_tokens_max: usize,
    pub hold_text_chars: usize,
    pub attempts_max: u32,
    pub model_calls_max: u64,
    /// Who calls tools whose callers a client does not name; by model first.
    pub(crate) callers: DefaultCallers,
    pub(crate) model_callers: Vec<(String, DefaultCallers)>,
    pub(crate) direct_tools: Vec<String>,
    pub(crate) text_models: Vec<String>,
}

impl GatewayOptions {
    pub(super) fn code_mode(&mut self, errors: &mut Vec<String>) -> CodeModeConfig {
        let options = std::mem::take(&mut self.code_mode);
        let mut parse = |key: &str, text: &str| {
            CodeMode::parse(text).unwrap_or_else(|| {
                errors.push(format!("{key}: `{text}` is not known; use plain, explicit, native or off"));
                CodeMode::Plain
            })
        };
        let default = options.default.as_deref().map_or(CodeMode::Plain, |text| parse("code_mode.default", text));
        let models = options.models.into_iter().map(|(model, text)| {
            let mode = parse(&format!("code_mode.models.\"{model}\""), &text);
            (model, mode)
        });
        let mut models: Vec<(String, CodeMode)> = models.collect();
        // The most particular pattern is asked first.
        let particularity =
            |pattern: &String| std::cmp::Reverse(pattern.chars().filter(|letter| *letter != '*').count());
        models.sort_by_key(|(pattern, _)| particularity(pattern));
        let mut parse = |key: &str, text: &str| {
            DefaultCallers::parse(text).unwrap_or_else(|| {
                errors.push(format!("{key}: `{text}` is not known; use programs or both"));
                DefaultCallers::Programs
            })
        };
        let callers =
            options.callers.as_deref().map_or(DefaultCallers::Programs, |text| parse("code_mode.callers", text));
        let model_callers = options.model_callers.into_iter().map(|(model, text)| {
            let callers = parse(&format!("code_mode.model_callers.\"{model}\""), &text);
            (model, callers)
        });
        let mut model_callers: Vec<(String, DefaultCallers)> = model_callers.collect();
        model_callers.sort_by_key(|(pattern, _)| particularity(pattern));
        CodeModeConfig {
            default,
            models,
            callers,
            model_callers,
            direct_tools: options.direct_tools,
            text_models: options.text_models,
            declarations_tokens_max: options.declarations_tokens_max.unwrap_or(16_000),
            hold_text_chars: options.hold_text_chars.unwrap_or(0),
            attempts_max: options.attempts_max.unwrap_or(5),
            model_calls_max: options.model_calls_max.unwrap_or(20),
        }
    }
}
