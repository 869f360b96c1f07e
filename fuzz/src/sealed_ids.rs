//! Any text as an id, and any state in one: what is opened is what was sealed, and what was changed is refused.
#![no_main]

mod json;

use std::sync::{Arc, LazyLock};

use dacapo_replay::{ArgsDigest, CallIndex, CompletedCall, JsonText, Toolbox};
use dacapo_wire::{
    CallExtra, CallRef, GivenRecord, ModelCall, ModelMessage, PackedState, Reasoning, RoundHeader, RunState, Sealer,
    SealingSecrets, UnsealError, Unsealed,
};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

static SEALER: LazyLock<Sealer> = LazyLock::new(|| Sealer::new(b"a secret of some length", "tenant"));
/// The secret of [`SEALER`] was replaced, and still opens.
static REPLACED: LazyLock<Sealer> = LazyLock::new(|| {
    SealingSecrets::new("another secret of some length", ["a secret of some length"]).sealer("tenant")
});
static OTHERS: LazyLock<[Sealer; 2]> = LazyLock::new(|| {
    [Sealer::new(b"a secret of some length", "tenant2"), Sealer::new(b"A secret of some length", "tenant")]
});

const KEYS: [&str; 4] = ["reasoning_content", "reasoning_details", "text", "extra_content"];

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        for text in [text, &format!("dc1_{text}")] {
            check_canonical(text);
        }
        check_stored(text);
    }
    // Too little data for a state is no finding.
    sealed(&mut Unstructured::new(data)).unwrap_or_default();
});

const ANSWERED: [u8; 8] = *b"answered";

/// An id has one spelling only.
fn check_canonical(id: &str) {
    match SEALER.unseal(id) {
        Err(_) => {}
        Ok(Unsealed::Round { state, header, calls, .. }) => {
            assert_eq!(SEALER.seal(&state, &header, &calls)[0], id);
        }
        Ok(Unsealed::Sibling { run, round, call }) => assert_eq!(format!("dc1_{run}_{round}_{}", call.0), id),
    }
}

/// Any text comes back under its name, and nothing else is opened.
fn check_stored(text: &str) {
    assert!(SEALER.unseal_text("name", text).is_err(), "{text} was accepted");
    let sealed = SEALER.seal_text("name", text);
    assert_eq!(SEALER.unseal_text("name", &sealed).as_deref(), Ok(text));
    assert!(SEALER.unseal_text("another name", &sealed).is_err());
}

fn sealed(input: &mut Unstructured<'_>) -> Result<()> {
    let mut state = state(input)?;
    if input.arbitrary()? {
        let no_tools = Toolbox::read("[]").expect("an empty list");
        let paid = CompletedCall::new("pay", &json!({}), JsonText::from(&json!(1)));
        state.record = GivenRecord::of(&[paid], no_tools.catalog());
    }
    let round = input.arbitrary()?;
    let mut calls = Vec::new();
    let mut next = 0_u32;
    while input.ratio(3, 4)? && !input.is_empty() {
        let call = next + u32::from(input.arbitrary::<u16>()?);
        next = call + 1;
        calls.push(CallRef { call: CallIndex(call), args: ArgsDigest(input.arbitrary()?) });
    }

    let header = RoundHeader::new(round, ANSWERED);
    let ids = SEALER.seal(&state, &header, &calls);
    assert_eq!(ids.len(), calls.len().max(1));
    let run = state.run();
    let packed = Arc::new(PackedState::of(&state));
    let opened = Arc::new(state.clone());
    let expected = Unsealed::Round { state: opened, packed, header: header.clone(), calls: calls.clone() };
    assert_eq!(SEALER.unseal(&ids[0]), Ok(expected.clone()));
    assert_eq!(REPLACED.unseal(&ids[0]), Ok(expected));
    for (id, asked) in ids.iter().zip(&calls).skip(1) {
        assert_eq!(SEALER.unseal(id), Ok(Unsealed::Sibling { run, round, call: asked.call }));
        assert!(id.len() <= 40, "providers take no longer ones: {id}");
    }
    for id in &ids {
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')), "{id}");
        assert!(!id.contains("__thought__"), "{id}");
    }
    assert_eq!(ids, SEALER.seal(&state, &header, &calls));
    for other in &*OTHERS {
        assert_eq!(other.unseal(&ids[0]), Err(UnsealError::Foreign));
    }

    let changed = changed(&ids[0], input)?;
    let is_accepted = matches!(SEALER.unseal(&changed), Ok(Unsealed::Round { .. }));
    assert!(!is_accepted || changed == ids[0], "{changed} was accepted instead of {}", ids[0]);
    Ok(())
}

/// One bit flipped, cut, or with something appended.
fn changed(id: &str, input: &mut Unstructured<'_>) -> Result<String> {
    let at = input.choose_index(id.len())?;
    let mut bytes = id.as_bytes().to_vec();
    match input.int_in_range(0..=3)? {
        0 => bytes[at] ^= 1 << input.int_in_range(0..=6)?,
        1 => bytes.truncate(at),
        2 => bytes.extend_from_slice(input.arbitrary::<&str>()?.as_bytes()),
        _ => {
            // The last character has bits that no byte uses.
            let last = bytes.len() - 1;
            bytes[last] = input.arbitrary::<u8>()? & 0x7f;
        }
    }
    Ok(String::from_utf8(bytes).expect("seven bits stay seven bits"))
}

fn state(input: &mut Unstructured<'_>) -> Result<RunState> {
    let code: String = input.arbitrary()?;
    let mut model_messages = Vec::new();
    while input.arbitrary()? && !input.is_empty() {
        model_messages.push(message(input)?);
    }
    let mut last = message(input)?;
    let program = ModelCall {
        name: (*input.choose(&["execute", "execute_program"])?).to_owned(),
        arguments: json!({"code": code}).to_string(),
        extra: extra(input)?,
        ..ModelCall::default()
    };
    let at = input.int_in_range(0..=last.calls.len())?;
    last.calls.insert(at, program);
    model_messages.push(last);
    Ok(RunState {
        seed: input.arbitrary()?,
        started_at_ms: input.arbitrary()?,
        tools: input.arbitrary()?,
        mentioned: Vec::new(),
        record: None,
        stored: None,
        context: None,
        model_messages,
        at,
        code,
        earlier_answers: Vec::new(),
    })
}

fn message(input: &mut Unstructured<'_>) -> Result<ModelMessage> {
    let mut calls = Vec::new();
    while input.ratio(1, 3)? && !input.is_empty() {
        calls.push(ModelCall {
            name: input.arbitrary()?,
            arguments: input.arbitrary()?,
            extra: extra(input)?,
            ..ModelCall::default()
        });
    }
    let reasoning = if input.arbitrary()? { reasoning(input)? } else { Reasoning::default() };
    Ok(ModelMessage { text: input.arbitrary()?, reasoning, calls, ..ModelMessage::default() })
}

/// What the providers of each wire want back.
fn reasoning(input: &mut Unstructured<'_>) -> Result<Reasoning> {
    let mut map = json!({"reasoning_details": json::any(input, &KEYS)?});
    for key in ["items", "blocks"] {
        if input.arbitrary()? {
            map[key] = json!([json::object(input, &KEYS)?]);
        }
    }
    Ok(serde_json::from_value(map).expect("reasoning"))
}

fn extra(input: &mut Unstructured<'_>) -> Result<CallExtra> {
    Ok(match input.int_in_range(0..=2)? {
        0 => CallExtra::None,
        1 => CallExtra::WrittenAsText,
        _ => CallExtra::ExtraContent(json::any(input, &KEYS)?),
    })
}
