//! Who is asked for a model: names of the operator's own, and upstreams that take over where another one cannot answer.

use std::sync::Arc;

use axum::http::StatusCode;
use dacapo_replay::matches_pattern;

use crate::http::TurnError;
use crate::upstream::Upstream;

/// A name that clients may ask for, or a pattern of names, and who is asked then.
#[derive(Debug, Clone)]
pub(crate) struct ModelRule {
    pub name: String,
    /// In the order in which they are asked; never empty.
    pub targets: Vec<RuleTarget>,
}

#[derive(Debug, Clone)]
pub(crate) struct RuleTarget {
    /// The model's name at the upstream; `None`: as the client wrote it.
    pub model: Option<String>,
    /// Position in the list of upstreams.
    pub upstream: usize,
}

/// All upstreams, and the rules that name them.
#[derive(Debug)]
pub(crate) struct ModelRoutes {
    upstreams: Vec<Arc<Upstream>>,
    rules: Vec<ModelRule>,
}

/// Those who may be asked for the model of one request, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    targets: Vec<RouteTarget>,
    at: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct RouteTarget {
    pub upstream: Arc<Upstream>,
    /// The model's name there.
    pub model: String,
}

impl ModelRoutes {
    pub(crate) fn new(upstreams: Vec<Upstream>, mut rules: Vec<ModelRule>) -> ModelRoutes {
        // The most particular pattern is asked first.
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.name.chars().filter(|letter| *letter != '*').count()));
        ModelRoutes { upstreams: upstreams.into_iter().map(Arc::new).collect(), rules }
    }

    pub(crate) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// The names of the operator's own that are no patterns, each with the upstream that is asked first.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &Upstream)> {
        let named = self.rules.iter().filter(|rule| !rule.name.contains('*'));
        named.filter_map(|rule| Some((rule.name.as_str(), &**self.upstreams.get(rule.targets.first()?.upstream)?)))
    }

    /// Who is asked for a model: those of the first rule that fits, or else the first upstream that has it.
    pub(crate) fn of(&self, model: &str) -> Result<Route, TurnError> {
        let rule = self.rules.iter().find(|rule| matches_pattern(&rule.name, model));
        let targets: Vec<RouteTarget> = if let Some(rule) = rule {
            rule.targets.iter().filter_map(|target| self.target(target, model)).collect()
        } else {
            let first = self.upstreams.iter().find(|upstream| upstream.has(model));
            let target = |upstream| RouteTarget { upstream, model: model.to_owned() };
            first.cloned().map(target).into_iter().collect()
        };
        if targets.is_empty() {
            let rules = self.rules.iter().map(|rule| rule.name.as_str());
            let known = self.upstreams.iter().flat_map(|upstream| &upstream.models).map(String::as_str);
            let known: Vec<&str> = rules.chain(known).collect();
            let message = format!("no upstream has the model `{model}`; configured are {}", known.join(", "));
            return Err(TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message));
        }
        Ok(Route { targets, at: 0 })
    }

    fn target(&self, target: &RuleTarget, model: &str) -> Option<RouteTarget> {
        let upstream = Arc::clone(self.upstreams.get(target.upstream)?);
        Some(RouteTarget { upstream, model: target.model.clone().unwrap_or_else(|| model.to_owned()) })
    }
}

impl Route {
    /// To one upstream, for a request that names no model.
    pub(crate) fn to(upstream: Arc<Upstream>) -> Route {
        Route { targets: vec![RouteTarget { upstream, model: String::new() }], at: 0 }
    }

    /// Who is asked now.
    pub(crate) fn target(&self) -> &RouteTarget {
        &self.targets[self.at]
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.target().upstream
    }

    /// Names the one that is asked now, for [`Route::asked_at`] after the route has gone on.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The upstream at a position of the route.
    pub(crate) fn asked_at(&self, position: usize) -> &Upstream {
        &self.targets[position].upstream
    }

    /// Whether no upstream has been asked before.
    pub(crate) fn is_at_first(&self) -> bool {
        self.at == 0
    }

    /// Who may be asked if this one cannot answer.
    pub(crate) fn next(&self) -> Option<&RouteTarget> {
        self.targets.get(self.at + 1)
    }

    /// Goes on to the next. `false` if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        let has_next = self.next().is_some();
        self.at += usize::from(has_next);
        has_next
    }
}

/// Whether another upstream may be able to answer where one responded with this status.
pub(crate) fn is_failure(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}
