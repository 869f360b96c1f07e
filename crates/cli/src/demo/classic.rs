//! The same conversation without programs: every call is the model's own, and every answer goes through its context.

use dacapo_wire::BASE62;
use serde_json::{Value, json};

use super::conversation::Call;
use super::tokens::{Cost, Prompt, count};

/// What the conversation costs if each batch of calls is one message of the model.
pub(crate) fn cost<'a>(
    question: &str,
    tools: &[Value],
    batches: impl IntoIterator<Item = &'a [Call]>,
    answer: &str,
) -> Cost {
    let mut prompt = Prompt::new(tools);
    let mut cost = Cost::default();
    let mut ids = Ids::default();
    prompt.push(&json!({"role": "user", "content": question}));
    for batch in batches {
        cost.ask(&prompt, batch.iter().map(|call| count(&call.tool) + count(&call.arguments)).sum());
        let with_ids: Vec<(String, &Call)> = batch.iter().map(|call| (ids.next(), call)).collect();
        let calls = with_ids.iter().map(|(id, call)| {
            json!({"id": id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}})
        });
        prompt.push(&json!({"role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>()}));
        for (id, call) in &with_ids {
            prompt.push(&json!({"role": "tool", "tool_call_id": id, "content": call.answer}));
        }
    }
    cost.ask(&prompt, count(answer));
    cost
}

impl Cost {
    fn ask(&mut self, prompt: &Prompt, completion_tokens: usize) {
        self.model_calls += 1;
        self.context_tokens += prompt.tokens();
        self.completion_tokens += completion_tokens as u64;
    }
}

/// Ids as short as those that the gateway shows to models, so that the comparison is fair.
#[derive(Default)]
struct Ids(u64);

impl Ids {
    fn next(&mut self) -> String {
        self.0 += 1;
        let mut number = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut digit = || {
            let digit = number % 62;
            number /= 62;
            char::from(BASE62[digit as usize])
        };
        (0..9).map(|_| digit()).collect()
    }
}
