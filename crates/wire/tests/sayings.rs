//! What models say, made fit to be carried.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::Toolbox;
use dacapo_wire::{ModelCall, Offer, Saying};

#[test]
fn a_message_that_was_made_fit_stays_as_it_is() {
    let toolbox = Toolbox::read(r#"[{"name": "get_weather"}]"#).expect("a tool");
    let offer = Offer::new(Arc::new(toolbox), BTreeSet::new(), 1_000);
    let call = |arguments: &str| ModelCall {
        name: "execute".to_owned(),
        arguments: arguments.to_owned(),
        ..ModelCall::default()
    };
    let calls = vec![call("{\"code"), call("return 1"), call(r#"{"code": "return 1"}"#)];
    let once = Saying { calls, ..Saying::default() }.normalized(&offer);
    let arguments: Vec<&str> = once.calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, [r#"{"not_json":"{\"code"}"#, r#"{"code":"return 1"}"#, r#"{"code":"return 1"}"#]);
    assert_eq!(once.clone().normalized(&offer), once);
}
