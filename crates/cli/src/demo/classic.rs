//! The cost of the same conversation without programs: the model makes every call and reads every answer.

use dacapo_wire::BASE62;
use serde_json::{Value, json};

use super::conversation::DemoCall;
use super::tokens::{Cost, Prompt, count};

/// What the conversation costs if each batch of calls is one message of the model.
pub(crate) fn cost<'a>(
    question: &str,
    tools: &[Value],
    batches: impl IntoIterator<Item = &'a [DemoCall]>,
    answer: &str,
) -> Cost {
    let mut prompt = Prompt::new(tools);
    let mut cost = Cost::default();
    let mut ids = ShortIds::default();
    prompt.push(&json!({"role": "user", "content": question}));
    for batch in batches {
        cost.add_model_call(&prompt, batch.iter().map(|call| count(&call.tool) + count(&call.arguments)).sum());
        let with_ids: Vec<(String, &DemoCall)> = batch.iter().map(|call| (ids.next(), call)).collect();
        let calls = with_ids.iter().map(|(id, call)| {
            json!({"id": id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}})
        });
        prompt.push(&json!({"role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>()}));
        for (id, call) in &with_ids {
            prompt.push(&json!({"role": "tool", "tool_call_id": id, "content": call.answer}));
        }
    }
    cost.add_model_call(&prompt, count(answer));
    cost
}

impl Cost {
    fn add_model_call(&mut self, prompt: &Prompt, completion_tokens: usize) {
        self.model_calls += 1;
        self.context_tokens += prompt.tokens();
        self.completion_tokens += completion_tokens as u64;
    }
}

/// Ids as short as those that the gateway shows to models, so that the comparison is fair.
#[derive(Default)]
struct ShortIds(u64);

impl ShortIds {
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
