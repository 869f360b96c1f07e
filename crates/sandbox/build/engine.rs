//! QuickJS as the guest needs it: its source with a few lines changed.

use std::error::Error;

/// Text that stands in the engine's source once, and what takes its place. Where there is less to change than to add, what is
/// added is in a header of the guest.
const CHANGES: &[(&str, &str)] = &[
    // Errors and programs that ran out of fuel are reported at the right position: unchanged, the engine updates the position
    // of a function only at calls, and has lines for few kinds of expressions.
    ("switch (opcode = *pc++)", "sf->cur_pc = pc + 1; switch (opcode = *pc++)"),
    ("/* specific label handling */", "emit_source_loc(s);"),
    // A name that is not ASCII is not looked up by its bytes: they may be those of another name in Latin-1.
    (
        "if (len == 0 || !is_digit(*str)) {\n        // TODO(chqrlie)",
        "size_t chars;\n    if ((len == 0 || !is_digit(*str)) && utf8_scan(str, len, &chars) == UTF8_PLAIN_ASCII) {\n        // TODO(chqrlie)",
    ),
    // There are no modules here: programs import tools.
    ("js_dynamic_import(ctx, sp[-2], sp[-1]);", "import_tools(ctx, sp[-2]);"),
    // Functions of tools are defined when they are first used, see name_lists.h. Where the engine finds no property, it asks the
    // class of the object. Here it looks at all properties, forbids new ones, deletes one, or declares a global variable.
    (
        "*ptab = NULL;\n    *plen = 0;\n\n    /* compute the number of returned properties */",
        "*ptab = NULL;\n    *plen = 0;\n    if (unlikely(p->is_exotic) && complete_names(ctx, p)) return -1;",
    ),
    (
        "    p->extensible = false;\n    return true;\n}",
        "    if (p->is_exotic && complete_names(ctx, p)) return -1;\n    p->extensible = false;\n    return true;\n}",
    ),
    (
        "intptr_t h, h1;\n\n redo:",
        "intptr_t h, h1;\n    if (p->is_exotic && forget_name(ctx, p, atom)) return -1;\n redo:",
    ),
    (
        "flags = JS_PROP_ENUMERABLE | JS_PROP_WRITABLE |\n            (def_flags & JS_PROP_CONFIGURABLE);",
        "flags = JS_PROP_ENUMERABLE | JS_PROP_WRITABLE | (def_flags & JS_PROP_CONFIGURABLE);\n        \
         if (define_name(ctx, p, prop) < 0) return -1;",
    ),
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
        "#include \"byte_strings.h\"\n\
         static const uint8_t resume_throw[] = {OP_invalid};\n\
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
        "for (i = from; i < len; i++) {\n                if (str8(p)[i] == (uint8_t)c)\n                    return i;\n            }",
        "return find_byte(str8(p), c, from, len);",
    ),
    (
        "slow_path:\n    r = JS_ToStringCheckObject(ctx, this_val);",
        "slow_path:\n    r = concat_bytes(ctx, this_val, argc, argv);\n    if (!JS_IsUninitialized(r)) return r;\n    \
         r = JS_ToStringCheckObject(ctx, this_val);",
    ),
    (
        "add_slow_case:\n                    sf->cur_pc = pc;\n                    if (js_add_slow(ctx, sp))",
        "add_slow_case:\n                    sf->cur_pc = pc;\n                    \
         i = append_in_place(ctx, assigned_next(pc, var_buf, var_refs), sp);\n                    \
         if (i < 0 || (i == 0 && js_add_slow(ctx, sp)))",
    ),
    // `x = 1;` does not keep the value for an expression around it: `dup put_x drop` becomes `put_x`, as the engine has it for
    // variables that cannot be used before their declaration.
    (
        "/* Transformation: dup put_x(n) -> set_x(n) */\n",
        "if (code_match(&cc, pos_next, M2(OP_put_loc_check, OP_put_var_ref_check), -1, -1)) {
                    CodeContext put = cc;
                    if (code_match(&cc, put.pos, OP_drop, -1)) {
                        if (put.line_num >= 0) line_num = put.line_num;
                        if (put.col_num >= 0) col_num = put.col_num;
                        add_pc2line_info(s, bc_out.size, line_num, col_num);
                        dbuf_putc(&bc_out, put.op);
                        dbuf_put_u16(&bc_out, put.idx);
                        if (cc.line_num >= 0) line_num = cc.line_num;
                        if (cc.col_num >= 0) col_num = cc.col_num;
                        pos_next = cc.pos;
                        break;
                    }
                }\n",
    ),
    // Compiling a program: brackets are looked over without making tokens, operators are parsed without a call for each level of
    // precedence, names are looked up where they stand, and bytecode is written into room that is there.
    (
        "/* XXX: improve speed with early bailout */",
        "#include \"skip_brackets.h\"\n/* XXX: improve speed with early bailout */",
    ),
    (
        "    /* protect from underflow */\n",
        "    tok = skip_brackets(s, &bits, no_line_terminator);\n    \
         if (tok != SKIP_UNKNOWN) {\n        if (pbits) *pbits = bits;\n        return tok;\n    }\n    \
         tok = TOK_EOF;\n    bits = 0;\n",
    ),
    (
        "static __exception int js_parse_expr_binary(",
        "#include \"binary_operators.h\"\n#if 0\nstatic __exception int js_parse_expr_binary(",
    ),
    (
        "/* allowed parse_flags: PF_IN_ACCEPTED */\nstatic __exception int js_parse_logical_and_or(",
        "#endif\nstatic __exception int js_parse_logical_and_or(",
    ),
    (
        "static JSAtom parse_ident(JSParseState *s, const uint8_t **pp,\n                          bool *pident_has_escape,",
        "#include \"plain_name.h\"\nstatic JSAtom parse_ident(JSParseState *s, const uint8_t **pp, bool *pident_has_escape,",
    ),
    (
        "JSAtom atom = JS_ATOM_NULL;\n\n    p = *pp;\n    buf = ident_buf;\n    ident_size = sizeof(ident_buf);\n    ident_pos = 0;\n    if (is_private)",
        "JSAtom atom = JS_ATOM_NULL;\n\n    \
         if (c < 0x80 && !is_private && !*pident_has_escape && (atom = plain_name(s, pp))) return atom;\n    \
         p = *pp;\n    buf = ident_buf;\n    ident_size = sizeof(ident_buf);\n    ident_pos = 0;\n    if (is_private)",
    ),
    (
        "js_dbuf_init(ctx, &fd->byte_code);\n",
        "js_dbuf_init(ctx, &fd->byte_code);\n    dbuf_claim(&fd->byte_code, BYTECODE_ROOM);\n",
    ),
    (
        "js_dbuf_init(ctx, &bc_out);\n\n    /* first pass",
        "js_dbuf_init(ctx, &bc_out);\n    dbuf_claim(&bc_out, bc_len);\n\n    /* first pass",
    ),
    (
        "js_dbuf_init(ctx, &bc_out);\n\n    if (s->jump_size) {",
        "js_dbuf_init(ctx, &bc_out);\n    dbuf_claim(&bc_out, bc_len);\n\n    if (s->jump_size) {",
    ),
    (
        "static JSValue js_array_sort(JSContext *ctx, JSValueConst this_val,\n",
        "#include \"array_sort.h\"\nstatic JSValue js_array_sort(JSContext *ctx, JSValueConst this_val,\n",
    ),
    (
        "rqsort(array, pos, sizeof(*array), js_array_cmp_generic, &asc);\n    if (asc.exception)",
        "if (sort_values(&asc, array, pos))",
    ),
    (
        "int JS_DefinePropertyValueValue(JSContext *ctx, JSValueConst this_obj,\n                                \
         JSValue prop, JSValue val, int flags)\n{",
        "#include \"array_append.h\"\n\
         int JS_DefinePropertyValueValue(JSContext *ctx, JSValueConst this_obj, JSValue prop, JSValue val, int flags)\n{\n    \
         if (is_next_element(this_obj, prop, flags)) return add_fast_array_element(ctx, JS_VALUE_GET_OBJ(this_obj), val, flags);",
    ),
    (
        "int64_t idx, JSValueConst val, int flags)\n{\n    JSAtom atom;",
        "int64_t idx, JSValueConst val, int flags)\n{\n    \
         if (is_next_element(this_obj, js_int64(idx), flags))\n        \
         return add_fast_array_element(ctx, JS_VALUE_GET_OBJ(this_obj), js_dup(val), flags);\n    JSAtom atom;",
    ),
];

pub(crate) fn changed(source: &str) -> Result<String, Box<dyn Error>> {
    CHANGES.iter().try_fold(source.to_owned(), |source, (from, to)| match source.matches(from).count() {
        1 => Ok(source.replace(from, to)),
        count => Err(format!("expected `{from}` once in quickjs.c, found it {count} times").into()),
    })
}
