// Strings of one byte for each character, as nearly all are: put together, appended to and searched without the detours
// that the engine takes for any string.

static inline bool is_bytes(JSValueConst value) {
  return JS_VALUE_GET_TAG(value) == JS_TAG_STRING && !JS_VALUE_GET_STRING(value)->is_wide_char;
}

// Where a character is in a string, from `from` on; -1 if it is not.
static int find_byte(const uint8_t *text, uint8_t c, int from, int len) {
  const uint64_t ones = 0x0101010101010101u, highs = ones << 7;
  for (; len - from >= 8; from += 8) {
    uint64_t word;
    memcpy(&word, text + from, 8);
    word ^= ones * c;
    // Of the bytes that are flagged, the lowest is zero; those above it may not be.
    uint64_t flagged = (word - ones) & ~word & highs;
    if (flagged) return from + (__builtin_ctzll(flagged) >> 3);
  }
  for (; from < len; from++)
    if (text[from] == c) return from;
  return -1;
}

#define CONCAT_MAX 16

// Strings and integers put together: what a template makes of its parts. JS_UNINITIALIZED if there is anything else.
static JSValue concat_bytes(JSContext *ctx, JSValueConst first, int argc, JSValueConst *argv) {
  char digits[CONCAT_MAX][12];
  uint8_t digit_count[CONCAT_MAX];
  if (!is_bytes(first) || argc > CONCAT_MAX) return JS_UNINITIALIZED;
  uint32_t len = JS_VALUE_GET_STRING(first)->len;
  for (int i = 0; i < argc; i++) {
    if (JS_VALUE_GET_TAG(argv[i]) == JS_TAG_INT) len += digit_count[i] = i32toa(digits[i], JS_VALUE_GET_INT(argv[i]));
    else if (is_bytes(argv[i])) len += JS_VALUE_GET_STRING(argv[i])->len;
    else return JS_UNINITIALIZED;
    if (len > JS_STRING_ROPE_SHORT2_LEN) return JS_UNINITIALIZED;
  }
  JSString *whole = js_alloc_string(ctx, len, 0);
  if (!whole) return JS_EXCEPTION;
  uint8_t *to = str8(whole);
  memcpy(to, str8(JS_VALUE_GET_STRING(first)), JS_VALUE_GET_STRING(first)->len);
  to += JS_VALUE_GET_STRING(first)->len;
  for (int i = 0; i < argc; i++) {
    bool is_number = JS_VALUE_GET_TAG(argv[i]) == JS_TAG_INT;
    JSString *part = is_number ? NULL : JS_VALUE_GET_STRING(argv[i]);
    uint32_t part_len = is_number ? digit_count[i] : part->len;
    memcpy(to, is_number ? (uint8_t *)digits[i] : str8(part), part_len);
    to += part_len;
  }
  *to = '\0';
  return JS_MKPTR(JS_TAG_STRING, whole);
}

// Characters in the last part of a rope that is appended to. The string is as large as the engine's small blocks are, of
// which it knows how much room they have.
#define ROPE_PART_LEN 472

// The variable that the next instruction assigns to, if it is a simple one.
static JSValue *assigned_next(const uint8_t *pc, JSValue *var_buf, JSVarRef **var_refs) {
  switch (*pc) {
  case OP_put_loc:
  case OP_put_loc_check: return &var_buf[get_u16(pc + 1)];
  case OP_put_loc8: return &var_buf[pc[1]];
  case OP_put_var_ref:
  case OP_put_var_ref_check: return var_refs[get_u16(pc + 1)]->pvalue;
  default: return NULL;
  }
}

// `text += piece`, for operands `sp[-2]` and `sp[-1]` and the variable that is assigned to: appends where the text is, if
// nobody but the variable has it. 1 if it did, and `sp[-2]` is the sum; -1 with an exception.
static int append_in_place(JSContext *ctx, const JSValue *variable, JSValue *sp) {
  if (JS_VALUE_GET_TAG(sp[-2]) != JS_TAG_STRING_ROPE || !is_bytes(sp[-1]) || !variable) return 0;
  JSStringRope *rope = JS_VALUE_GET_STRING_ROPE(sp[-2]);
  if (JS_VALUE_GET_TAG(*variable) != JS_TAG_STRING_ROPE || JS_VALUE_GET_STRING_ROPE(*variable) != rope) return 0;
  if (JS_REF_COUNT(rope) != 2 || !is_bytes(rope->right)) return 0;
  JSString *last = JS_VALUE_GET_STRING(rope->right), *added = JS_VALUE_GET_STRING(sp[-1]);
  if (JS_REF_COUNT(last) != 1 || last->kind != JS_STRING_KIND_NORMAL || last->atom_type) return 0;
  // To the engine, a rope with an empty end is a string in one piece.
  if (added->len == 0 || added->len > ROPE_PART_LEN || rope->len + added->len > JS_STRING_LEN_MAX) return 0;
  uint32_t len = last->len + added->len;
  if (len > ROPE_PART_LEN) {
    JSValue longer = js_new_string_rope(ctx, sp[-2], sp[-1]);
    sp[-1] = JS_UNDEFINED;
    sp[-2] = JS_IsException(longer) ? JS_UNDEFINED : longer;
    return JS_IsException(longer) ? -1 : 1;
  }
  if (js_malloc_usable_size(ctx, last) < sizeof *last + len + 1) {
    JSString *larger = js_alloc_string_rt(ctx->rt, ROPE_PART_LEN, 0);
    if (!larger) return 0;
    memcpy(str8(larger), str8(last), last->len);
    larger->len = last->len;
    JS_FreeValue(ctx, rope->right);
    rope->right = JS_MKPTR(JS_TAG_STRING, larger);
    last = larger;
  }
  memcpy(str8(last) + last->len, str8(added), added->len);
  last->len = len;
  str8(last)[len] = '\0';
  rope->len += added->len;
  JS_FreeValue(ctx, sp[-1]);
  return 1;
}
