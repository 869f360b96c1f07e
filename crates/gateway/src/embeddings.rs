//! A second opinion for tool searches: an embeddings model of an upstream ranks the tools, and both orders are joined.
//!
//! Vectors are kept by content, in memory and in the store, so that a list of tools is sent once. Whatever goes wrong, the
//! search goes on with words alone.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use dacapo_lru::LruCache;
use dacapo_replay::{Catalog, ToolIndex};
use dacapo_wire::UnopenedStates;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::store::Store;
use crate::upstream::Secret;

/// Texts in one request.
const BATCH_TEXTS_MAX: usize = 256;
/// Of a longer description, the beginning is sent.
const TEXT_CHARS_MAX: usize = 1_000;
/// Longer lists are searched by words alone: sending them would take minutes.
const TOOLS_MAX: usize = 5_000;
const VECTORS_MAX: usize = 20_000;
const VECTORS_BYTES_MAX: usize = 128 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
/// After a failure, nothing is sent for so long.
const PAUSE: Duration = Duration::from_secs(30);
/// Vectors belong to texts, not to a client.
const TENANT: &str = "";

/// Where vectors come from.
#[derive(Debug, Clone)]
pub(crate) struct EmbeddingsConfig {
    /// The name of the upstream, for people to read.
    pub upstream: String,
    pub base_url: String,
    pub key: Option<Secret>,
    pub model: String,
}

/// Ranks tools by the meaning of their descriptions.
pub(crate) struct Embeddings {
    config: EmbeddingsConfig,
    client: reqwest::Client,
    vectors: Mutex<LruCache<Vec<f32>>>,
    paused_until: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Embeddings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embeddings").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A text, by its digest.
type TextKey = [u8; 32];

impl Embeddings {
    pub(crate) fn new(config: EmbeddingsConfig, client: reqwest::Client) -> Embeddings {
        let vectors = Mutex::new(LruCache::new(VECTORS_MAX, VECTORS_BYTES_MAX));
        Embeddings { config, client, vectors, paused_until: Mutex::new(None) }
    }

    /// The tools for each need, best first; nothing if that cannot be found out now.
    pub(crate) async fn rank(&self, catalog: &Catalog, needs: &[String], store: Option<&Store>) -> Vec<Vec<ToolIndex>> {
        if catalog.tools().len() > TOOLS_MAX {
            return Vec::new();
        }
        let tools = (0_u32..).zip(catalog.functions()).map(|(index, function)| {
            let description = catalog.tools()[index as usize].description.as_deref().unwrap_or_default();
            format!("{}: {}", function.expression(), dacapo_catalog::shorten(description, TEXT_CHARS_MAX))
        });
        let texts: Vec<String> =
            tools.chain(needs.iter().map(|need| dacapo_catalog::shorten(need, TEXT_CHARS_MAX))).collect();
        let vectors = match self.vectors_of(&texts, store).await {
            Ok(vectors) => vectors,
            Err(error) => {
                let (upstream, model) = (&self.config.upstream, &self.config.model);
                tracing::warn!(upstream, model, error, "tools are searched by words alone");
                return Vec::new();
            }
        };
        let (tools, needs) = vectors.split_at(catalog.tools().len());
        needs.iter().map(|need| ranking(tools, need)).collect()
    }

    /// The vector of each text. `Err` says why there are none.
    async fn vectors_of(&self, texts: &[String], store: Option<&Store>) -> Result<Vec<Vec<f32>>, String> {
        let keys: Vec<TextKey> = texts.iter().map(|text| self.key(text)).collect();
        let mut vectors: Vec<Option<Vec<f32>>> = {
            let mut known = self.vectors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            keys.iter().map(|key| known.get(key).cloned()).collect()
        };
        let missing = |vectors: &[Option<Vec<f32>>]| -> Vec<usize> {
            (0..vectors.len()).filter(|index| vectors[*index].is_none()).collect()
        };
        if let Some(store) = store {
            self.read_stored(&keys, &missing(&vectors), &mut vectors, store).await;
        }
        let absent = missing(&vectors);
        if !absent.is_empty() && self.is_paused() {
            return Err("the upstream failed a moment ago".to_owned());
        }
        for batch in absent.chunks(BATCH_TEXTS_MAX) {
            let input: Vec<&str> = batch.iter().map(|index| texts[*index].as_str()).collect();
            let found = match self.ask(&input).await {
                Ok(found) => found,
                Err(error) => {
                    self.pause();
                    return Err(error);
                }
            };
            for (index, vector) in batch.iter().zip(found) {
                if let Some(store) = store {
                    // A store that fails costs only the next request its time.
                    let text = json!(vector).to_string();
                    if let Err(error) = store.put_text(TENANT, &Self::stored_name(&keys[*index]), &text).await {
                        tracing::debug!(%error, "a vector was not stored");
                    }
                }
                vectors[*index] = Some(vector);
            }
        }
        let mut known = self.vectors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let vectors: Vec<Vec<f32>> = vectors.into_iter().flatten().collect();
        for (key, vector) in keys.iter().zip(&vectors) {
            drop(known.put(*key, vector.clone(), vector.len() * size_of::<f32>()));
        }
        let length = vectors.first().map_or(0, Vec::len);
        if vectors.len() == texts.len() && vectors.iter().all(|vector| vector.len() == length) {
            return Ok(vectors);
        }
        Err("the vectors have different lengths".to_owned())
    }

    async fn read_stored(&self, keys: &[TextKey], missing: &[usize], vectors: &mut [Option<Vec<f32>>], store: &Store) {
        let names: Vec<String> = missing.iter().map(|index| Self::stored_name(&keys[*index])).collect();
        match store.get_texts(TENANT, &names, &UnopenedStates::default()).await {
            Ok(found) => {
                for (index, text) in missing.iter().zip(found) {
                    vectors[*index] = text.and_then(|text| serde_json::from_str(&text).ok());
                }
            }
            Err(error) => tracing::debug!(%error, "no stored vectors"),
        }
    }

    /// Asks the model for the vectors of some texts.
    async fn ask(&self, input: &[&str]) -> Result<Vec<Vec<f32>>, String> {
        let EmbeddingsConfig { base_url, key, model, .. } = &self.config;
        let body = json!({"model": model, "input": input, "encoding_format": "float"}).to_string();
        let mut request = self
            .client
            .post(format!("{base_url}/embeddings"))
            .header("content-type", "application/json")
            .timeout(TIMEOUT)
            .body(body);
        if let Some(key) = key {
            request = request.bearer_auth(&key.0);
        }
        // What an upstream says of a failure may hold its key, so only the status is logged.
        let response = request.send().await.map_err(|error| error.without_url().to_string())?;
        if !response.status().is_success() {
            return Err(format!("the upstream answered with status {}", response.status()));
        }
        let body = response.bytes().await.map_err(|error| error.without_url().to_string())?;
        let body: Value = serde_json::from_slice(&body).map_err(|error| format!("no JSON came back: {error}"))?;
        let mut vectors: Vec<Option<Vec<f32>>> = vec![None; input.len()];
        for (position, item) in body["data"].as_array().into_iter().flatten().enumerate() {
            let index = item["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or(position);
            let vector = item["embedding"].as_array().map(|numbers| {
                #[expect(clippy::cast_possible_truncation, reason = "no model has more digits")]
                let number = |number: &Value| number.as_f64().map(|number| number as f32);
                numbers.iter().map(number).collect::<Option<Vec<f32>>>()
            });
            if let (Some(place), Some(Some(vector))) = (vectors.get_mut(index), vector) {
                *place = Some(vector);
            }
        }
        let found: Vec<Vec<f32>> = vectors.into_iter().flatten().collect();
        if found.len() == input.len() {
            return Ok(found);
        }
        Err(format!("{} texts were sent, and {} vectors came back", input.len(), found.len()))
    }

    fn key(&self, text: &str) -> TextKey {
        let mut hash = Sha256::new_with_prefix(b"dacapo embedding 1\0");
        hash.update(self.config.base_url.as_bytes());
        hash.update([0]);
        hash.update(self.config.model.as_bytes());
        hash.update([0]);
        hash.update(text.as_bytes());
        hash.finalize().into()
    }

    fn stored_name(key: &TextKey) -> String {
        use std::fmt::Write;
        let mut name = "embedding:".to_owned();
        for byte in key {
            // Writing to a string cannot fail.
            write!(name, "{byte:02x}").unwrap_or_default();
        }
        name
    }

    fn is_paused(&self) -> bool {
        let until = self.paused_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn pause(&self) {
        let mut until = self.paused_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *until = Some(Instant::now() + PAUSE);
    }
}

/// The tools by how near their vectors are to that of a need.
fn ranking(tools: &[Vec<f32>], need: &[f32]) -> Vec<ToolIndex> {
    let length = |vector: &[f32]| vector.iter().map(|number| number * number).sum::<f32>().sqrt().max(f32::EPSILON);
    let likeness = |tool: &Vec<f32>| {
        let product: f32 = tool.iter().zip(need).map(|(one, other)| one * other).sum();
        product / (length(tool) * length(need))
    };
    let mut order: Vec<(f32, ToolIndex)> =
        (0..).map(ToolIndex).zip(tools).map(|(index, tool)| (likeness(tool), index)).collect();
    order.sort_by(|(one, a), (other, b)| other.total_cmp(one).then(a.cmp(b)));
    order.into_iter().map(|(_, tool)| tool).collect()
}
