// Parses operands and the binary operators between them with one call for each operand. The engine makes one for each of
// eight levels of precedence, above every operand, and most expressions have no operator at all.

// How loosely an operator binds, from 1 on; 0 for a token that is none.
static int binary_operator(int token, int parse_flags, int *opcode) {
  switch (token) {
  case '*': *opcode = OP_mul; return 1;
  case '/': *opcode = OP_div; return 1;
  case '%': *opcode = OP_mod; return 1;
  case '+': *opcode = OP_add; return 2;
  case '-': *opcode = OP_sub; return 2;
  case TOK_SHL: *opcode = OP_shl; return 3;
  case TOK_SAR: *opcode = OP_sar; return 3;
  case TOK_SHR: *opcode = OP_shr; return 3;
  case '<': *opcode = OP_lt; return 4;
  case '>': *opcode = OP_gt; return 4;
  case TOK_LTE: *opcode = OP_lte; return 4;
  case TOK_GTE: *opcode = OP_gte; return 4;
  case TOK_INSTANCEOF: *opcode = OP_instanceof; return 4;
  case TOK_IN: *opcode = OP_in; return parse_flags & PF_IN_ACCEPTED ? 4 : 0;
  case TOK_EQ: *opcode = OP_eq; return 5;
  case TOK_NEQ: *opcode = OP_neq; return 5;
  case TOK_STRICT_EQ: *opcode = OP_strict_eq; return 5;
  case TOK_STRICT_NEQ: *opcode = OP_strict_neq; return 5;
  case '&': *opcode = OP_and; return 6;
  case '^': *opcode = OP_xor; return 7;
  case '|': *opcode = OP_or; return 8;
  default: return 0;
  }
}

static int js_parse_expr_binary(JSParseState *s, int level, int parse_flags);

// `#name in object`, from the name on.
static int parse_private_in(JSParseState *s, int parse_flags) {
  JSAtom name = JS_DupAtom(s->ctx, s->token.u.ident.atom);
  if (next_token(s) || s->token.val != TOK_IN || next_token(s) || js_parse_expr_binary(s, 3, parse_flags)) {
    JS_FreeAtom(s->ctx, name);
    return -1;
  }
  emit_op(s, OP_scope_in_private_field);
  emit_atom(s, name);
  emit_u16(s, s->cur_func->scope_level);
  JS_FreeAtom(s->ctx, name);
  return 0;
}

// Stops at the first token that is no operator of this level or a tighter one.
static int js_parse_expr_binary(JSParseState *s, int level, int parse_flags) {
  if (s->token.val == TOK_PRIVATE_NAME && level >= 4 && parse_flags & PF_IN_ACCEPTED && peek_token(s, false) == TOK_IN) {
    if (parse_private_in(s, parse_flags)) return -1;
  } else if (js_parse_unary(s, PF_POW_ALLOWED)) {
    return -1;
  }
  for (;;) {
    int opcode, binds = binary_operator(s->token.val, parse_flags, &opcode);
    if (binds == 0 || binds > level) return 0;
    if (next_token(s)) return -1;
    emit_source_loc(s);
    // Of operators that bind alike, the first one is the first to be applied.
    if (js_parse_expr_binary(s, binds - 1, parse_flags)) return -1;
    emit_op(s, opcode);
  }
}
