//! What a client's tool answered, as a program gets it: text, or JSON with a handle for each image and file.

use dacapo_replay::{Answer, Attachment, JsonText};
use serde_json::{Map, Value, json};

use crate::neutral::{Media, MediaKind, MediaSource, MessagePart, ToolStatus, text_or_json};
use crate::remarks;

/// The answer of the tool itself, and the images and files that it has handles for. Their blocks are in the format of
/// the client's wire.
pub(crate) struct ToolAnswer {
    pub answer: Answer,
    pub attachments: Vec<Attachment>,
    /// What an agent has appended to the tool's result: reminders, or what the user wrote meanwhile.
    pub appended: Option<String>,
}

/// Content blocks of a wire, to the neutral form and back.
pub(crate) struct BlockFormat {
    pub read: fn(&Value) -> MessagePart,
    pub write: fn(&Media) -> Value,
}

impl BlockFormat {
    /// The block of an image or a file; `None` for parts that are something else.
    pub(crate) fn write_part(&self, part: &MessagePart) -> Option<Value> {
        match part {
            MessagePart::Media(media) => Some((self.write)(media)),
            MessagePart::Native(block) => Some(block.clone()),
            _ => None,
        }
    }
}

impl ToolAnswer {
    /// Reads the content of a tool result. `key` identifies the call.
    pub(crate) fn read(content: Option<&Value>, status: ToolStatus, format: &BlockFormat, key: &str) -> ToolAnswer {
        let mut attachments = Attachments { key, found: Vec::new() };
        let mut appended = None;
        let answer = match content {
            Some(Value::Array(blocks)) if blocks.iter().any(|block| kind(block).is_some()) => {
                let mut parts: Vec<Value> = blocks.iter().map(|block| attachments.part(block, format)).collect();
                if let Some(Value::String(text)) = parts.last_mut().and_then(|part| part.get_mut("text")) {
                    let (rest, reminders) = remarks::split_reminders(text);
                    let length = rest.len();
                    text.truncate(length);
                    appended = reminders;
                    if appended.is_some() && text.is_empty() {
                        parts.pop();
                    }
                }
                answer_of_parts(parts, status)
            }
            other => {
                let text = text_or_json(other);
                let (text, reminders) = remarks::split_reminders(&text);
                appended = reminders;
                match parts_in_text(text).filter(|_| status == ToolStatus::Ok) {
                    Some(written) => Answer::Ok(JsonText::from(&attachments.written(written, format))),
                    None => answer(text, status),
                }
            }
        };
        ToolAnswer { answer, attachments: attachments.found, appended }
    }
}

/// What a program gets of a list of parts. The message of a failure is text, so that its images are in it as JSON.
fn answer_of_parts(parts: Vec<Value>, status: ToolStatus) -> Answer {
    if status == ToolStatus::Ok {
        return Answer::Ok(JsonText::from(&Value::Array(parts)));
    }
    let text = |part: &Value| match part["text"].as_str() {
        Some(text) if part["type"] == "text" => text.to_owned(),
        _ => part.to_string(),
    };
    Answer::Error { message: parts.iter().map(text).collect::<Vec<_>>().join("\n"), data: None }
}

/// The attachments of one answer.
struct Attachments<'a> {
    key: &'a str,
    found: Vec<Attachment>,
}

impl Attachments<'_> {
    /// What a program sees of a block.
    fn part(&mut self, block: &Value, format: &BlockFormat) -> Value {
        let Some(kind) = kind(block) else {
            return match block.get("text") {
                Some(text) => json!({"type": "text", "text": text}),
                None => block.clone(),
            };
        };
        let mut fields = Map::new();
        fields.insert("type".to_owned(), Value::from(kind));
        match (format.read)(block) {
            MessagePart::Media(media) => add_fields(&mut fields, &media),
            // A document that is text.
            MessagePart::Text(text) if matches!(block["source"]["type"].as_str(), Some("text" | "content")) => {
                fields.insert("text".to_owned(), Value::from(text));
            }
            _ => {}
        }
        self.add(fields, block.clone())
    }

    /// The same for parts that are JSON text.
    fn written(&mut self, written: Value, format: &BlockFormat) -> Value {
        match written {
            Value::Array(parts) => parts.into_iter().map(|part| self.written_part(part, format)).collect(),
            Value::Object(mut fields) => {
                if let Some(content) = fields.get_mut("content") {
                    *content = self.written(content.take(), format);
                }
                Value::Object(fields)
            }
            other => other,
        }
    }

    fn written_part(&mut self, part: Value, format: &BlockFormat) -> Value {
        let Some(media) = written_media(&part) else { return part };
        let mut fields = Map::new();
        let kind = if media.kind == MediaKind::Image { "image" } else { "file" };
        fields.insert("type".to_owned(), Value::from(kind));
        add_fields(&mut fields, &media);
        self.add(fields, (format.write)(&media))
    }

    fn add(&mut self, mut fields: Map<String, Value>, block: Value) -> Value {
        let handle = Attachment::handle(self.key, self.found.len());
        fields.insert("handle".to_owned(), Value::from(handle.as_str()));
        self.found.push(Attachment { handle, block });
        Value::Object(fields)
    }
}

fn add_fields(fields: &mut Map<String, Value>, media: &Media) {
    let (key, value) = match &media.source {
        MediaSource::Url(url) => ("uri", url),
        MediaSource::Data { mime, .. } => ("mimeType", mime),
    };
    fields.insert(key.to_owned(), Value::from(value.as_str()));
    if let Some(name) = &media.name {
        fields.insert("name".to_owned(), Value::from(name.as_str()));
    }
}

/// What a block is, if a program cannot read it. On any wire.
pub(crate) fn kind(block: &Value) -> Option<&'static str> {
    match block["type"].as_str()? {
        "image" | "image_url" | "input_image" => Some("image"),
        "document" | "file" | "input_file" => Some("file"),
        "audio" | "input_audio" => Some("audio"),
        "video" | "video_url" | "input_video" => Some("video"),
        _ => None,
    }
}

/// Content parts that a client has written as JSON, because it takes tool results for text: those of MCP
/// (`{"type": "image", "data": "…", "mimeType": "…"}`, alone or in the field `content` of a result) and of the AI SDK
/// (`mediaType`).
fn parts_in_text(text: &str) -> Option<Value> {
    let is_json = text.trim_start().starts_with(['[', '{']);
    if !is_json || !text.contains("\"mimeType\"") && !text.contains("\"mediaType\"") {
        return None;
    }
    // A tree takes many times the memory of its text. Content has few values, however long they are.
    let values = text.bytes().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count();
    let written: Value = if values > VALUES_MAX { None } else { serde_json::from_str(text).ok() }?;
    let parts = match &written {
        Value::Object(result) if result.keys().all(|key| RESULT_FIELDS.contains(&key.as_str())) => {
            result.get("content")?.as_array()?
        }
        other => other.as_array()?,
    };
    let is_list = parts.iter().all(|part| part["type"].is_string());
    (is_list && parts.iter().any(|part| written_media(part).is_some())).then_some(written)
}

/// The most JSON values in content that is read.
const VALUES_MAX: usize = 10_000;

/// The fields of a tool result of MCP.
const RESULT_FIELDS: [&str; 4] = ["content", "isError", "structuredContent", "_meta"];

/// The image or file in a content part of MCP or of the AI SDK.
pub(crate) fn written_media(part: &Value) -> Option<Media> {
    if !matches!(part["type"].as_str()?, "image" | "audio" | "file" | "media" | "image-data" | "file-data" | "resource")
    {
        return None;
    }
    let content = if part["type"] == "resource" { &part["resource"] } else { part };
    let mime = content["mimeType"].as_str().or_else(|| content["mediaType"].as_str())?;
    let texts = [&content["data"], &content["data"]["data"], &content["blob"]];
    let source = match texts.into_iter().find_map(Value::as_str).filter(|data| is_base64(data)) {
        Some(data) => MediaSource::Data { mime: mime.to_owned(), data: data.to_owned() },
        None => MediaSource::Url(content["data"]["url"].as_str()?.to_owned()),
    };
    let kind = if mime.starts_with("image/") { MediaKind::Image } else { MediaKind::File };
    let name = content["filename"].as_str().or_else(|| content["uri"].as_str()).map(str::to_owned);
    Some(Media { kind, source, name, detail: None })
}

fn is_base64(data: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    !data.is_empty() && data.bytes().all(is_digit)
}

/// The answer of a tool whose result is text.
fn answer(text: &str, status: ToolStatus) -> Answer {
    match status {
        ToolStatus::Failed => Answer::Error { message: text.to_owned(), data: None },
        ToolStatus::Ok => Answer::Ok(JsonText::string(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::{VALUES_MAX, parts_in_text};

    #[test]
    fn only_content_with_images_or_files_is_read_from_text() {
        let image = r#"{"type": "image", "data": "aGk=", "mimeType": "image/png"}"#;
        for content in [format!("[{image}]"), format!("{{\"content\": [{image}]}}"), format!(" [{image}] ")] {
            assert!(parts_in_text(&content).is_some(), "{content}");
        }
        let filler = format!("[{image}{}]", r#",{"type":"text","text":"x"}"#.repeat(VALUES_MAX));
        for other in [
            image,
            &format!("see [{image}]"),
            &format!("[{image}, 1]"),
            &format!("{{\"content\": [{image}], \"total\": 1}}"),
            r#"[{"type": "image", "data": "not base64!", "mimeType": "image/png"}]"#,
            r#"[{"type": "row", "data": "aGk=", "mimeType": "image/png"}]"#,
            r#"[{"mimeType": "image/png"}]"#,
            "[\"mimeType\"",
            &filler,
        ] {
            assert!(parts_in_text(other).is_none(), "{}", &other[..other.len().min(100)]);
        }
    }
}
