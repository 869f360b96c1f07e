//! A program that runs for a client: on its own, so that it can go on while the client is away to ask a person.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::approval::{Approval, Approver};
use crate::ask::{Ask, Owners};
use crate::execution::Execution;
use crate::lock::lock;
use crate::run::{Moment, Progress, Runner};

/// Cancelled when it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) ending: JoinHandle<Execution>,
    pub(crate) news: watch::Receiver<News>,
    pub(crate) questions: mpsc::UnboundedReceiver<Question>,
    /// Questions that nobody has answered yet.
    pub(crate) open: VecDeque<Question>,
    /// Tools that need no more questions in this program.
    approved: BTreeSet<(String, String)>,
    pub(crate) identity: Identity,
    pub(crate) ledger: Arc<Ledger>,
    _cancel: DropGuard,
}

/// Which program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity([u8; 32]);

impl Identity {
    pub(crate) fn of(code: &str) -> Identity {
        Identity(Sha256::digest(code.as_bytes()).into())
    }
}

/// The calls of a program, for whoever asks when it is gone.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Account>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// How often each tool was called and answered.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Calls that may have been sent, and have not been answered.
    pub(crate) open: usize,
}

impl Ledger {
    pub(crate) fn account(&self) -> Account {
        lock(&self.0).clone()
    }

    fn note(&self, progress: Progress<'_>) {
        let mut account = lock(&self.0);
        account.open = progress.made - progress.done;
        if matches!(progress.moment, Moment::Answered | Moment::Failed) {
            *account.calls.entry(progress.tool.to_owned()).or_default() += 1;
        }
    }
}

/// How far a program has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) done: usize,
    pub(crate) message: String,
}

/// May this call be made?
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) ask: Ask,
    reply: oneshot::Sender<Approval>,
}

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Once,
    WholeProgram,
    No,
    /// There was nobody.
    Silence,
}

/// Passes questions on to whoever serves the client.
struct Messenger(mpsc::UnboundedSender<Question>);

impl Approver for Messenger {
    fn approve<'a>(&'a self, ask: &'a Ask) -> Pin<Box<dyn Future<Output = Approval> + Send + 'a>> {
        Box::pin(async {
            let (reply, replied) = oneshot::channel();
            let question = Question { ask: ask.clone(), reply };
            match self.0.send(question) {
                Ok(()) => replied.await.unwrap_or(Approval::Nobody),
                Err(_) => Approval::Nobody,
            }
        })
    }
}

impl Running {
    pub(crate) fn start(runner: Arc<Runner>, owners: Arc<dyn Owners>, program: String, can_ask: bool) -> Running {
        let (asking, questions) = mpsc::unbounded_channel();
        let (telling, news) = watch::channel(News::default());
        let cancel = CancellationToken::new();
        let cancelled = cancel.clone();
        let (identity, ledger) = (Identity::of(&program), Arc::<Ledger>::default());
        let noting = Arc::clone(&ledger);
        let ending = tokio::spawn(async move {
            let watcher = |progress: Progress<'_>| {
                noting.note(progress);
                drop(telling.send(News::of(progress)));
            };
            let approver: &dyn Approver = if can_ask { &Messenger(asking) } else { &Approval::Nobody };
            runner.run(&program, &*owners, approver, &watcher, &cancelled).await
        });
        let (open, approved) = (VecDeque::new(), BTreeSet::new());
        Running { ending, news, questions, open, approved, identity, ledger, _cancel: cancel.drop_guard() }
    }

    /// Keeps a question until it is answered, which may be at once.
    pub(crate) fn hear(&mut self, question: Question) {
        if self.approved.contains(&question.tool()) {
            question.answer(Approval::Given);
        } else {
            self.open.push_back(question);
        }
    }

    /// Answers a question, and all others that it settles.
    pub(crate) fn answer(&mut self, question: Question, word: Word) {
        let tool = question.tool();
        question.answer(match word {
            Word::Once | Word::WholeProgram => Approval::Given,
            Word::No => Approval::Declined,
            Word::Silence => Approval::Nobody,
        });
        if word == Word::WholeProgram {
            self.approved.insert(tool);
            for question in std::mem::take(&mut self.open) {
                self.hear(question);
            }
        }
    }

    /// The oldest open question of each tool.
    pub(crate) fn by_tool(&mut self) -> VecDeque<Question> {
        let mut tools = BTreeSet::new();
        let (first, rest) = self.open.drain(..).partition(|question| tools.insert(question.tool()));
        self.open = rest;
        first
    }
}

impl Question {
    fn tool(&self) -> (String, String) {
        (self.ask.server.clone(), self.ask.tool.clone())
    }

    fn answer(self, approval: Approval) {
        // A program that has ended no longer listens.
        self.reply.send(approval).unwrap_or_default();
    }
}

impl News {
    fn of(progress: Progress<'_>) -> News {
        let Progress { tool, moment, done, made } = progress;
        let what = match moment {
            Moment::Began => format!("calling {tool}"),
            Moment::Answered => format!("{tool} answered"),
            Moment::Failed => format!("{tool} failed"),
            Moment::Refused => format!("{tool} was refused"),
        };
        News { done, message: format!("{done} of {made} calls done; {what}") }
    }
}
