//! QuickJS as the guest needs it: its source with a few lines changed.

use std::error::Error;

/// Text that stands in the engine's source once, and what takes its place. Where there is less to change than to add, what is
/// added is in a header of the guest.
const CHANGES: &[(&str, &str)] = &[
    // Errors and programs that ran out of fuel are reported at the right position: unchanged, the engine updates the position
    // of a function only at calls, and has lines for few kinds of expressions.
    ("switch (opcode = *pc++)", "sf->cur_pc = pc + 1; switch (opcode = *pc++)"),
    ("/* specific label handling */", "emit_source_loc(s);"),
    // There are no modules here; namespaces of tools are made when they are first read.
    ("js_module_ns_autoinit, /* JS_AUTOINIT_ID_MODULE_NS */", "namespace_autoinit,"),
    ("js_dynamic_import(ctx, sp[-2], sp[-1]);", "import_tools(ctx, sp[-2]);"),
    // A promise knows the tool whose answer it waits for.
    (
        "bool is_handled;\n    JSValue promise_result;",
        "bool is_handled;\n    uint32_t tool;\n    JSValue promise_result;",
    ),
    // A function that is resumed with an error begins with an instruction that throws it. Unchanged, it begins inside the loop
    // that executes instructions. WebAssembly has no way to say that, and the loop would look after every instruction
    // whether it is at its beginning.
    (
        "static JSValue JS_CallInternal(JSContext *caller_ctx, JSValueConst func_obj,",
        "static const uint8_t resume_throw[] = {OP_invalid};\n\
         static uint8_t *resumed_at;\n\
         static JSValue JS_CallInternal(JSContext *caller_ctx, JSValueConst func_obj,",
    ),
    (
        "if (s->throw_flag)\n                goto exception;\n            else\n                goto restart;",
        "if (s->throw_flag) { resumed_at = pc; pc = (uint8_t *)resume_throw; }\n            goto restart;",
    ),
    (
        "CASE(OP_invalid):\n",
        "CASE(OP_invalid): if (pc == resume_throw + 1) { sf->cur_pc = pc = resumed_at; goto exception; }\n",
    ),
    // JSON is read by ours, and by the engine's own parser if it is not well formed or a reviver wants to know its source.
    ("static JSValue JS_ParseJSON_internal(", "#include \"json_read.h\"\nstatic JSValue JS_ParseJSON_internal("),
    (
        "js_parse_init(ctx, s, buf, buf_len, filename, 1);",
        "if (!pr && !JS_IsUninitialized(val = json_read(ctx, buf, buf_len, filename))) return val;\n    val = JS_UNDEFINED;\n    \
         js_parse_init(ctx, s, buf, buf_len, filename, 1);",
    ),
    (
        "static JSValue js_string_toLowerCase(JSContext *ctx, JSValueConst this_val,\n",
        "#include \"ascii_case.h\"\nstatic JSValue js_string_toLowerCase(JSContext *ctx, JSValueConst this_val,\n",
    ),
    (
        "if (p->len == 0)\n        return val;\n    if (string_buffer_init(ctx, b, p->len))",
        "if (p->len == 0) return val;\n    JSValue ascii = ascii_case(ctx, p, to_lower);\n    \
         if (!JS_IsUninitialized(ascii)) { JS_FreeValue(ctx, val); return ascii; }\n    \
         if (string_buffer_init(ctx, b, p->len))",
    ),
    (
        "static JSValue js_array_sort(JSContext *ctx, JSValueConst this_val,\n",
        "#include \"array_sort.h\"\nstatic JSValue js_array_sort(JSContext *ctx, JSValueConst this_val,\n",
    ),
    (
        "rqsort(array, pos, sizeof(*array), js_array_cmp_generic, &asc);\n    if (asc.exception)",
        "if (sort_values(&asc, array, pos))",
    ),
];

pub(crate) fn changed(source: &str) -> Result<String, Box<dyn Error>> {
    CHANGES.iter().try_fold(source.to_owned(), |source, (from, to)| match source.matches(from).count() {
        1 => Ok(source.replace(from, to)),
        count => Err(format!("expected `{from}` once in quickjs.c, found it {count} times").into()),
    })
}
