//! What a search asks for.

/// What a search asks for: one text, or one for each step of a task.
///
/// ```
/// use dacapo_catalog::SearchText;
/// let steps = SearchText::new(None, vec!["find the weather".to_owned(), "send a mail".to_owned()]).unwrap();
/// assert_eq!(steps, SearchText::Queries(vec!["find the weather".to_owned(), "send a mail".to_owned()]));
/// assert!(SearchText::new(None, Vec::new()).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchText {
    /// One text, which may name several needs. A blank one asks for all tools.
    Query(String),
    /// Two or more needs, one text for each.
    Queries(Vec<String>),
}

/// Why a search asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchTextError {
    /// There is neither a query nor a list of them.
    #[error("a search needs `query`, or `queries` with one text for each step of the task")]
    Missing,
    /// The list is too long.
    #[error("`queries` has {found} texts; ask for at most {} at once", SearchText::QUERIES_MAX)]
    TooMany {
        /// How many there are.
        found: usize,
    },
}

impl SearchText {
    /// Queries in one search.
    pub const QUERIES_MAX: usize = 16;
    /// Tools in one answer, however many queries there are.
    pub const HITS_MAX: usize = 50;

    /// From the two arguments of a search. Blank texts in the list ask for nothing.
    pub fn new(query: Option<String>, queries: Vec<String>) -> Result<SearchText, SearchTextError> {
        let is_blank = |text: &String| text.trim().is_empty();
        let is_list = !queries.is_empty();
        let mut all: Vec<String> = query.iter().filter(|query| !is_blank(query)).cloned().collect();
        all.extend(queries.into_iter().filter(|query| !is_blank(query)));
        match (all.len(), query) {
            (0, Some(query)) => Ok(SearchText::Query(query)),
            (0, None) if !is_list => Err(SearchTextError::Missing),
            (0, None) => Ok(SearchText::Query(String::new())),
            (1, _) => Ok(SearchText::Query(all.remove(0))),
            (found, _) if found > SearchText::QUERIES_MAX => Err(SearchTextError::TooMany { found }),
            _ => Ok(SearchText::Queries(all)),
        }
    }

    /// The texts.
    pub fn texts(&self) -> &[String] {
        match self {
            SearchText::Query(query) => std::slice::from_ref(query),
            SearchText::Queries(queries) => queries,
        }
    }

    /// How many tools to find if each text gets this many.
    pub fn hits(&self, each: usize) -> usize {
        each.saturating_mul(self.texts().len()).min(SearchText::HITS_MAX.max(each))
    }

    /// Tokens that the answer may take, about: `first` for one text, and half of it for each further one.
    pub fn tokens(&self, first: usize) -> usize {
        const TEXTS_MAX: usize = 7;
        first + first / 2 * (self.texts().len().min(TEXTS_MAX) - 1)
    }
}

impl From<&str> for SearchText {
    fn from(query: &str) -> SearchText {
        SearchText::Query(query.to_owned())
    }
}

impl From<&SearchText> for SearchText {
    fn from(text: &SearchText) -> SearchText {
        text.clone()
    }
}
