//! Types accept the values that their schemas accept, and no others: `tsc` is asked.

mod support;

use std::collections::BTreeMap;

use dacapo_catalog::type_of;
use serde_json::Value;
use support::{DataSource, LabelledSchema, compile};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SchemaLine {
    Declaration,
    Valid,
    Invalid,
}

/// One TypeScript file, and what each of its lines is for.
#[derive(Default)]
struct SchemaFile {
    text: String,
    lines: Vec<(SchemaLine, String)>,
}

impl SchemaFile {
    fn push(&mut self, line: SchemaLine, id: &str, text: &str) {
        for text in text.lines() {
            self.text.push_str(text);
            self.text.push('\n');
            self.lines.push((line, format!("{id}: {text}")));
        }
    }
}

/// Schemas and labelled values, and what `tsc` thinks of them.
#[derive(Default)]
struct Judged {
    files: BTreeMap<String, SchemaFile>,
    warnings: Vec<String>,
    rejected: Vec<String>,
    valid_rejected: Vec<String>,
    invalid_accepted: Vec<String>,
}

impl Judged {
    /// Adds a namespace with the schema's type and a constant for each value.
    fn add(&mut self, file: &str, labelled: &LabelledSchema) {
        let file = self.files.entry(file.to_owned()).or_default();
        let ty = type_of(&labelled.schema, "Root");
        let id = &labelled.id;
        file.push(SchemaLine::Declaration, id, &format!("namespace {id} {{\n{}", ty.text));
        for (index, value) in labelled.valid.iter().enumerate() {
            file.push(SchemaLine::Valid, id, &format!("const v{index}: Root = {value};"));
        }
        for (index, value) in labelled.invalid.iter().enumerate() {
            file.push(SchemaLine::Invalid, id, &format!("// @ts-expect-error\nconst i{index}: Root = {value};"));
        }
        file.push(SchemaLine::Declaration, id, "}");
        self.warnings.extend(ty.warnings.into_iter().map(|warning| format!("{id}: {warning}")));
    }

    fn ask_tsc(&mut self) {
        let texts: Vec<(String, String)> =
            self.files.iter().map(|(name, file)| (name.clone(), file.text.clone())).collect();
        for (name, line, message) in compile(&texts) {
            let (kind, source) = &self.files[&name].lines[line - 1];
            let finding = format!("{message} in {source}");
            match kind {
                SchemaLine::Declaration => self.rejected.push(finding),
                SchemaLine::Valid => self.valid_rejected.push(finding),
                SchemaLine::Invalid => self.invalid_accepted.push(finding),
            }
        }
    }

    fn count(&self, kind: SchemaLine) -> usize {
        self.files.values().flat_map(|file| &file.lines).filter(|(line, _)| *line == kind).count()
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures are worth seeing")]
fn every_labelled_value_is_judged_as_its_label_says() {
    let mut judged = Judged::default();
    let mut schemas = 0;
    let mut labels_min = (0, 0);
    for source in DataSource::present() {
        for (index, labelled) in source.labelled_schemas().iter().enumerate() {
            schemas += 1;
            judged.add(&format!("{source:?}{}.ts", index / 400), labelled);
        }
        let (valid, invalid) = match source {
            DataSource::Corpus => (350, 500),
            DataSource::Shared => (900, 2_500),
        };
        labels_min = (labels_min.0 + valid, labels_min.1 + invalid);
    }

    judged.ask_tsc();
    let (valid, invalid) = (judged.count(SchemaLine::Valid), judged.count(SchemaLine::Invalid) / 2);
    eprintln!(
        "{schemas} schemas: {} refused by tsc; valid rejected {}/{valid}; invalid accepted {}/{invalid}; warnings {:?}",
        judged.rejected.len(),
        judged.valid_rejected.len(),
        judged.invalid_accepted.len(),
        judged.warnings,
    );
    assert!(valid > labels_min.0 && invalid > labels_min.1, "only {valid} and {invalid} labels were read");
    assert_eq!(judged.rejected, [""; 0]);
    assert_eq!(judged.valid_rejected, [""; 0]);
    assert_eq!(judged.invalid_accepted, [""; 0]);
}

/// What real servers seldom use. The labels are checked by the validator too.
#[test]
fn every_feature_of_json_schema_has_a_type_that_holds() {
    let features: Vec<Value> = serde_json::from_str(include_str!("schemas/features.json")).unwrap();
    let mut judged = Judged::default();
    for (index, feature) in features.iter().enumerate() {
        let validator = jsonschema::validator_for(&feature["schema"]).unwrap();
        for (label, is_valid) in [("valid", true), ("invalid", false)] {
            for value in feature[label].as_array().unwrap() {
                assert_eq!(validator.is_valid(value), is_valid, "{}: {value}", feature["about"]);
            }
        }
        let values = |label: &str| feature[label].as_array().unwrap().clone();
        let labelled = LabelledSchema {
            id: format!("s{index}"),
            schema: feature["schema"].clone(),
            valid: values("valid"),
            invalid: values("invalid"),
            invalid_beyond_types: Vec::new(),
        };
        judged.add("features.ts", &labelled);
    }

    judged.ask_tsc();
    assert_eq!(judged.warnings, [""; 0]);
    assert_eq!(judged.rejected, [""; 0]);
    assert_eq!(judged.valid_rejected, [""; 0]);
    assert_eq!(judged.invalid_accepted, [""; 0]);
}
