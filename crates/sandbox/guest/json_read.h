// Reads JSON: answers of tools, and what programs give to JSON.parse.
//
// The engine's own parser makes a token of every piece and a floating-point number of every number, and looks up every
// name. This one makes values at once, remembers names, and gives an object with the same names as one before it that
// object's shape. What it does not take for JSON is left to the engine's parser, which says what is wrong with it.

typedef struct {
  JSAtom name;
  JSValue value;
} JsonMember;

typedef struct {
  const uint8_t *text;
  uint32_t len;
  JSAtom atom; // JS_ATOM_NULL if there is none
} JsonName;

#define JSON_NAMES 64
#define JSON_SHAPES 16

typedef struct {
  JSContext *ctx;
  JSParseState *engine; // for strings with escapes and numbers with many digits
  const uint8_t *at, *end; // a zero follows the text
  bool malformed;
  JsonMember *members; // of all objects that are being read, the innermost last
  int count, size;
  JsonName names[JSON_NAMES]; // by a hash, the last one with it
  JSShape *shapes[JSON_SHAPES]; // of objects that were read, likewise
} JsonReader;

static JSValue json_malformed(JsonReader *r) {
  r->malformed = true;
  return JS_EXCEPTION;
}

static inline int json_peek(JsonReader *r) {
  while (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t') r->at++;
  return *r->at;
}

// The first character from here on that does not stand for itself in a string of ASCII: a quote, a backslash, a control
// character, part of another character, or the end.
static inline const uint8_t *json_plain_end(const uint8_t *p, const uint8_t *end) {
  const uint64_t ones = 0x0101010101010101u, highs = ones << 7;
  for (; end - p >= 8; p += 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    // Of the bytes that are flagged, the lowest is one that was looked for; those above it may not be.
    uint64_t flagged = (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * 0x20) & ~word) | word) & highs;
    if (flagged) return p + (__builtin_ctzll(flagged) >> 3);
  }
  while (p < end && *p != '"' && *p != '\\' && *p >= 0x20 && *p < 0x80) p++;
  return p;
}

// A string with escapes, or other characters than ASCII.
static JSValue json_any_string(JsonReader *r) {
  if (json_parse_string(r->engine, &r->at)) return json_malformed(r);
  r->engine->token.val = TOK_EOF; // its string is ours now
  return r->engine->token.u.str.str;
}

// After the quote.
static JSValue json_string(JsonReader *r) {
  const uint8_t *start = r->at, *end = json_plain_end(start, r->end);
  if (*end != '"') return json_any_string(r);
  r->at = end + 1;
  return end == start ? js_empty_string(r->ctx->rt) : js_new_string8_len(r->ctx, (const char *)start, end - start);
}

// After the quote. JS_ATOM_NULL with an exception.
static JSAtom json_name(JsonReader *r) {
  const uint8_t *start = r->at, *end = json_plain_end(start, r->end);
  if (*end != '"') {
    JSValue text = json_any_string(r);
    if (JS_IsException(text)) return JS_ATOM_NULL;
    JSAtom atom = JS_ValueToAtom(r->ctx, text);
    JS_FreeValue(r->ctx, text);
    return atom;
  }
  r->at = end + 1;
  uint32_t len = end - start;
  uint32_t hash = len ? len * 5 + start[0] * 3 + start[len - 1] * 7 + start[len / 2] : 0;
  JsonName *known = &r->names[hash % JSON_NAMES];
  if (known->atom != JS_ATOM_NULL && known->len == len && !memcmp(known->text, start, len)) return JS_DupAtom(r->ctx, known->atom);
  JSAtom atom = JS_NewAtomLen(r->ctx, (const char *)start, len);
  if (atom == JS_ATOM_NULL) return atom;
  if (known->atom != JS_ATOM_NULL) JS_FreeAtom(r->ctx, known->atom);
  *known = (JsonName){start, len, JS_DupAtom(r->ctx, atom)};
  return atom;
}

static JSValue json_number(JsonReader *r) {
  // Powers of ten that a double holds exactly. A quotient of two such numbers is rounded once, and so is right.
  static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const uint8_t *p = r->at;
  bool negative = *p == '-';
  p += negative;
  const uint8_t *digits = p;
  uint64_t value = 0;
  for (; is_digit(*p) && p - digits < 16; p++) value = value * 10 + (*p - '0');
  int count = p - digits, decimals = 0;
  bool simple = count > 0 && !(count > 1 && *digits == '0');
  if (*p == '.') {
    const uint8_t *point = p++;
    for (; is_digit(*p) && count < 16; p++, count++) value = value * 10 + (*p - '0');
    decimals = p - point - 1;
    simple = simple && decimals > 0;
  }
  if (!simple || count > 15 || is_digit(*p) || *p == 'e' || *p == 'E') {
    if (json_parse_number(r->engine, &r->at)) return json_malformed(r);
    return r->engine->token.u.num.val;
  }
  r->at = p;
  if (decimals == 0 && value <= INT32_MAX && !(negative && value == 0)) return js_int32(negative ? -(int32_t)value : (int32_t)value);
  double number = (double)value / powers[decimals];
  return js_float64(negative ? -number : number);
}

// Makes an object of the members from `from` on, and takes them away.
static JSValue json_object(JsonReader *r, int from) {
  JSContext *ctx = r->ctx;
  int count = r->count - from;
  if (count == 0) return JS_NewObject(ctx);
  JsonMember *members = r->members + from;
  JSShape **known = &r->shapes[(members[0].name + members[count - 1].name * 5 + count) % JSON_SHAPES];
  bool same = *known && (*known)->prop_count == count;
  for (int i = 0; same && i < count; i++) same = get_shape_prop(*known)[i].atom == members[i].name;
  JSValue object = same ? JS_NewObjectFromShape(ctx, js_dup_shape(*known), JS_CLASS_OBJECT, NULL) : JS_NewObject(ctx);
  if (JS_IsException(object)) return object;
  JSObject *o = JS_VALUE_GET_OBJ(object);
  if (same) {
    for (int i = 0; i < count; i++) o->prop[i].u.value = members[i].value;
  } else {
    for (int i = 0; i < count; i++) {
      JSProperty *property;
      if (find_own_property(&property, o, members[i].name)) {
        set_value(ctx, &property->u.value, members[i].value);
      } else {
        property = add_property(ctx, o, members[i].name, JS_PROP_C_W_E);
        if (!property) { JS_FreeValue(ctx, object); return JS_EXCEPTION; }
        property->u.value = members[i].value;
      }
      members[i].value = JS_UNDEFINED;
    }
    if (o->shape->is_hashed) {
      js_free_shape_null(ctx->rt, *known);
      *known = js_dup_shape(o->shape);
    }
  }
  for (int i = 0; i < count; i++) JS_FreeAtom(ctx, members[i].name);
  r->count = from;
  return object;
}

static bool json_keyword(JsonReader *r, const char *word, int len) {
  if (r->end - r->at < len || memcmp(r->at, word, len)) return false;
  r->at += len;
  return true;
}

static JSValue json_value(JsonReader *r) {
  JSContext *ctx = r->ctx;
  // So that the guest's stack ends long before the host's, which has all other variables.
  char room[32], *volatile kept = room;
  (void)kept;
  if (js_check_stack_overflow(ctx->rt, 0)) return JS_ThrowStackOverflow(ctx);
  int c = json_peek(r);
  switch (c) {
  case '"':
    r->at++;
    return json_string(r);
  case '{': {
    int from = r->count;
    r->at++;
    if (json_peek(r) == '}') {
      r->at++;
      return json_object(r, from);
    }
    do {
      if (json_peek(r) != '"') return json_malformed(r);
      r->at++;
      JSAtom name = json_name(r);
      if (name == JS_ATOM_NULL) return JS_EXCEPTION;
      if (r->count == r->size) {
        int size = r->size ? r->size * 2 : 32;
        JsonMember *members = js_realloc(ctx, r->members, size * sizeof *members);
        if (!members) { JS_FreeAtom(ctx, name); return JS_EXCEPTION; }
        r->members = members;
        r->size = size;
      }
      int place = r->count++;
      r->members[place] = (JsonMember){name, JS_UNDEFINED};
      if (json_peek(r) != ':') return json_malformed(r);
      r->at++;
      JSValue value = json_value(r);
      if (JS_IsException(value)) return value;
      r->members[place].value = value;
      c = json_peek(r);
      r->at++;
    } while (c == ',');
    return c == '}' ? json_object(r, from) : json_malformed(r);
  }
  case '[': {
    JSValue array = JS_NewArray(ctx);
    if (JS_IsException(array)) return array;
    r->at++;
    if (json_peek(r) == ']') {
      r->at++;
      return array;
    }
    do {
      JSValue element = json_value(r);
      if (JS_IsException(element) || add_fast_array_element(ctx, JS_VALUE_GET_OBJ(array), element, 0) < 0) {
        JS_FreeValue(ctx, array);
        return JS_EXCEPTION;
      }
      c = json_peek(r);
      r->at++;
    } while (c == ',');
    if (c == ']') return array;
    JS_FreeValue(ctx, array);
    return json_malformed(r);
  }
  case 't':
    return json_keyword(r, "true", 4) ? JS_TRUE : json_malformed(r);
  case 'f':
    return json_keyword(r, "false", 5) ? JS_FALSE : json_malformed(r);
  case 'n':
    return json_keyword(r, "null", 4) ? JS_NULL : json_malformed(r);
  default:
    return c == '-' || is_digit(c) ? json_number(r) : json_malformed(r);
  }
}

// JS_UNINITIALIZED if it is not JSON. `text[len]` is 0.
static JSValue json_read(JSContext *ctx, const char *text, size_t len, const char *filename) {
  JSParseState engine;
  js_parse_init(ctx, &engine, text, len, filename, 1);
  JsonReader reader = {.ctx = ctx, .engine = &engine, .at = (const uint8_t *)text, .end = (const uint8_t *)text + len};
  JSValue value = json_value(&reader);
  if (!JS_IsException(value) && (json_peek(&reader), reader.at != reader.end)) {
    JS_FreeValue(ctx, value);
    value = json_malformed(&reader);
  }
  for (int i = 0; i < reader.count; i++) {
    JS_FreeAtom(ctx, reader.members[i].name);
    JS_FreeValue(ctx, reader.members[i].value);
  }
  js_free(ctx, reader.members);
  for (int i = 0; i < JSON_NAMES; i++)
    if (reader.names[i].atom != JS_ATOM_NULL) JS_FreeAtom(ctx, reader.names[i].atom);
  for (int i = 0; i < JSON_SHAPES; i++) js_free_shape_null(ctx->rt, reader.shapes[i]);
  if (!reader.malformed) return value;
  JS_FreeValue(ctx, JS_GetException(ctx)); // of the engine, if it was asked
  return JS_UNINITIALIZED;
}
