//! Names of models of the operator's own, as they were configured.

use crate::model_routes::{ModelRule, RuleTarget};
use crate::options::{GatewayOptions, TargetOptions};
use crate::upstream::Upstream;

impl GatewayOptions {
    pub(super) fn model_rules(&mut self, upstreams: &[Upstream], errors: &mut Vec<String>) -> Vec<ModelRule> {
        let mut rules: Vec<ModelRule> = Vec::new();
        for (at, options) in std::mem::take(&mut self.models).into_iter().enumerate() {
            if options.name.is_empty() {
                errors.push(format!("model[{at}].name: is missing"));
            }
            if rules.iter().any(|known| known.name == options.name) {
                errors.push(format!("model[{at}].name: `{}` is there twice", options.name));
            }
            if options.ask.is_empty() {
                errors.push(format!("model[{at}].ask: is empty; write it like [{{ model = \"gpt-5-mini\" }}]"));
            }
            let mut targets = Vec::new();
            for (number, target) in options.ask.into_iter().enumerate() {
                match rule_target(target, upstreams) {
                    Ok(target) => targets.push(target),
                    Err(mistake) => errors.push(format!("model[{at}].ask[{number}]{mistake}")),
                }
            }
            rules.push(ModelRule { name: options.name, targets });
        }
        rules
    }
}

/// A mistake begins with the key that it is in, or a colon.
fn rule_target(target: TargetOptions, upstreams: &[Upstream]) -> Result<RuleTarget, String> {
    let TargetOptions { model, upstream } = target;
    let found = match (&upstream, &model) {
        (Some(name), _) => {
            let found = upstreams.iter().position(|upstream| upstream.name == *name);
            found.ok_or_else(|| format!(".upstream: there is no upstream `{name}`; name one of [[upstream]]"))
        }
        (None, Some(model)) => {
            let found = upstreams.iter().position(|upstream| upstream.has(model));
            found.ok_or_else(|| format!(".model: no upstream has the model `{model}`"))
        }
        (None, None) => Err(": needs `model`, `upstream` or both".to_owned()),
    };
    Ok(RuleTarget { upstream: found?, model })
}
