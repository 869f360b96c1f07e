//! The keywords of one schema, each looked up once.

use serde_json::{Map, Value};

/// What a schema says, by keyword.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Keywords<'s> {
    pub(super) additional_items: Option<&'s Value>,
    pub(super) additional_properties: Option<&'s Value>,
    pub(super) all_of: Option<&'s Value>,
    pub(super) any_of: Option<&'s Value>,
    pub(super) constant: Option<&'s Value>,
    pub(super) description: Option<&'s Value>,
    pub(super) dynamic_reference: Option<&'s str>,
    pub(super) else_schema: Option<&'s Value>,
    pub(super) enumeration: Option<&'s Value>,
    pub(super) if_schema: Option<&'s Value>,
    pub(super) items: Option<&'s Value>,
    pub(super) max_items: Option<&'s Value>,
    pub(super) min_items: Option<&'s Value>,
    pub(super) nullable: Option<&'s Value>,
    pub(super) one_of: Option<&'s Value>,
    pub(super) pattern_properties: Option<&'s Value>,
    pub(super) prefix_items: Option<&'s Value>,
    pub(super) properties: Option<&'s Value>,
    pub(super) property_names: Option<&'s Value>,
    pub(super) reference: Option<&'s Value>,
    pub(super) required: Option<&'s Value>,
    pub(super) then_schema: Option<&'s Value>,
    pub(super) title: Option<&'s Value>,
    pub(super) types: Option<&'s Value>,
    pub(super) unevaluated_properties: Option<&'s Value>,
    /// Whether there are others, which may constrain what types cannot.
    pub(super) has_others: bool,
}

impl<'s> Keywords<'s> {
    pub(super) fn of(fields: &'s Map<String, Value>) -> Keywords<'s> {
        let mut keywords = Keywords::default();
        for (keyword, value) in fields {
            let place = match keyword.as_str() {
                "additionalItems" => &mut keywords.additional_items,
                "additionalProperties" => &mut keywords.additional_properties,
                "allOf" => &mut keywords.all_of,
                "anyOf" => &mut keywords.any_of,
                "const" => &mut keywords.constant,
                "description" => &mut keywords.description,
                "else" => &mut keywords.else_schema,
                "enum" => &mut keywords.enumeration,
                "if" => &mut keywords.if_schema,
                "items" => &mut keywords.items,
                "nullable" => &mut keywords.nullable,
                "oneOf" => &mut keywords.one_of,
                "prefixItems" => &mut keywords.prefix_items,
                "properties" => &mut keywords.properties,
                "$ref" => &mut keywords.reference,
                "required" => &mut keywords.required,
                "then" => &mut keywords.then_schema,
                "title" => &mut keywords.title,
                "type" => &mut keywords.types,
                "unevaluatedProperties" => &mut keywords.unevaluated_properties,
                "$dynamicRef" | "$recursiveRef" => {
                    keywords.dynamic_reference = Some(keyword);
                    continue;
                }
                other => {
                    keywords.has_others = true;
                    match other {
                        "maxItems" => &mut keywords.max_items,
                        "minItems" => &mut keywords.min_items,
                        "patternProperties" => &mut keywords.pattern_properties,
                        "propertyNames" => &mut keywords.property_names,
                        _ => continue,
                    }
                }
            };
            *place = Some(value);
        }
        keywords
    }

    /// The keyword by which `OpenAPI` 3.0 adds null to a type.
    pub(super) fn is_nullable(&self) -> bool {
        self.nullable == Some(&Value::Bool(true))
    }
}
