// What leaves the world as JSON: arguments, results and logs.
//
// Like JSON.stringify, but nothing turns silently into `{}`: what JSON cannot carry is converted, or refused with its path.

enum { FOR_ARGUMENTS, FOR_RESULT, FOR_LOGS, FOR_STORE };

// Arguments and stored values: what has no JSON form is refused.
#define IS_STRICT(w) ((w)->purpose == FOR_ARGUMENTS || (w)->purpose == FOR_STORE)
#define NOT_POSSIBLE(w) ((w)->purpose == FOR_STORE ? "be stored" : "be sent to a tool")

#define DEPTH_MAX 100

typedef struct {
  JSContext *ctx;
  DynBuf *out;
  int purpose;
  int depth;
  JSObject *above[DEPTH_MAX + 1];
  JSAtom keys[DEPTH_MAX + 1]; // keys[i] leads from above[i - 1] to above[i]
} Writer;

// The prelude's `plain(value, class, purpose)`: a stand-in for what JSON has no word for, or an exception.
static JSValue serialize_hook_plain;

static int write_value(Writer *w, JSValueConst value, JSAtom key);
static uint32_t tool_of_promise(JSValueConst promise);
static void throw_is_promise(JSContext *ctx, JSValueConst promise, const char *path);

static void path_text(Writer *w, JSAtom last, char *into, size_t size) {
  size_t n = snprintf(into, size, "%s", w->purpose == FOR_ARGUMENTS ? "arguments" : w->purpose == FOR_STORE ? "value" : "result");
  for (int i = 1; i <= w->depth + 1 && n < size; i++) {
    JSAtom key = i <= w->depth ? w->keys[i] : last;
    if (key == JS_ATOM_NULL) continue;
    if (__JS_AtomIsTaggedInt(key)) { n += snprintf(into + n, size - n, "[%u]", __JS_AtomToUInt32(key)); continue; }
    const char *text = JS_AtomToCString(w->ctx, key);
    if (text) n += snprintf(into + n, size - n, ".%.40s", text);
    JS_FreeCString(w->ctx, text);
  }
}
static int refuse(Writer *w, JSAtom key, const char *what) {
  char path[400];
  path_text(w, key, path, sizeof path);
  JS_ThrowTypeError(w->ctx, "%s %s", path, what);
  return -1;
}

static void write_unit(DynBuf *out, uint32_t c) {
  static const char hex[] = "0123456789abcdef";
  if (c == '"' || c == '\\') { dbuf_putc(out, '\\'); dbuf_putc(out, c); }
  else if (c >= 0x20 && c < 0x80) dbuf_putc(out, c);
  else if (c == '\n') dbuf_putstr(out, "\\n");
  else if (c == '\t') dbuf_putstr(out, "\\t");
  else if (c == '\r') dbuf_putstr(out, "\\r");
  else if (c < 0x20) { char escape[7] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0}; dbuf_putstr(out, escape); }
  else { uint8_t utf8[4]; dbuf_put(out, utf8, utf8_encode(utf8, c)); }
}

static int write_string(Writer *w, JSValueConst value) {
  JSValue flat = JS_ToString(w->ctx, value);
  if (!JS_IsException(flat) && JS_VALUE_GET_TAG(flat) == JS_TAG_STRING_ROPE) {
    JSValue rope = flat;
    flat = js_linearize_string_rope(w->ctx, rope);
    if (JS_VALUE_GET_PTR(flat) != JS_VALUE_GET_PTR(rope)) JS_FreeValue(w->ctx, rope);
  }
  if (JS_IsException(flat)) return -1;
  JSString *s = JS_VALUE_GET_STRING(flat);
  DynBuf *out = w->out;
  dbuf_putc(out, '"');
  if (!s->is_wide_char) {
    const uint8_t *text = str8(s);
    uint32_t from = 0;
    for (uint32_t i = 0; i < s->len; i++) {
      uint8_t c = text[i];
      if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') continue;
      dbuf_put(out, text + from, i - from);
      write_unit(out, c);
      from = i + 1;
    }
    dbuf_put(out, text + from, s->len - from);
  } else {
    const uint16_t *text = str16(s);
    for (uint32_t i = 0; i < s->len; i++) {
      uint32_t c = text[i];
      if (is_hi_surrogate(c) && i + 1 < s->len && is_lo_surrogate(text[i + 1])) c = from_surrogate(c, text[++i]);
      else if (is_surrogate(c)) c = 0xfffd;
      write_unit(out, c);
    }
  }
  dbuf_putc(out, '"');
  JS_FreeValue(w->ctx, flat);
  return 0;
}

static int write_number(Writer *w, JSValueConst value) {
  if (JS_VALUE_GET_NORM_TAG(value) == JS_TAG_FLOAT64 && !isfinite(JS_VALUE_GET_FLOAT64(value)) && w->purpose != FOR_LOGS) {
    dbuf_putstr(w->out, "null");
    return 0;
  }
  size_t len;
  const char *text = JS_ToCStringLen(w->ctx, &len, value);
  if (!text) return -1;
  // -0 prints as 0, as JSON.stringify does.
  dbuf_put(w->out, (const uint8_t *)text, len);
  JS_FreeCString(w->ctx, text);
  return 0;
}

// A 64-bit integer keeps its digits; a larger one travels as text, because most readers of JSON would round it.
static int write_big_int(Writer *w, JSValueConst value) {
  size_t len;
  const char *text = JS_ToCStringLen(w->ctx, &len, value);
  if (!text) return -1;
  const char *bound = text[0] == '-' ? "-9223372036854775808" : "18446744073709551615";
  size_t bound_len = strlen(bound);
  bool bare = len < bound_len || (len == bound_len && strcmp(text, bound) <= 0);
  if (!bare) dbuf_putc(w->out, '"');
  dbuf_put(w->out, (const uint8_t *)text, len);
  if (!bare) dbuf_putc(w->out, '"');
  JS_FreeCString(w->ctx, text);
  return 0;
}

static int write_array(Writer *w, JSValueConst value) {
  int64_t len;
  if (JS_GetLength(w->ctx, value, &len)) return -1;
  dbuf_putc(w->out, '[');
  for (int64_t i = 0; i < len; i++) {
    if (i) dbuf_putc(w->out, ',');
    JSValue item = JS_GetPropertyInt64(w->ctx, value, i);
    if (JS_IsException(item)) return -1;
    int wrote = write_value(w, item, i <= JS_ATOM_MAX_INT ? __JS_AtomFromUInt32(i) : JS_ATOM_NULL);
    JS_FreeValue(w->ctx, item);
    if (wrote < 0) return -1;
    if (wrote == 0) dbuf_putstr(w->out, "null");
    if (dbuf_error(w->out)) break;
  }
  dbuf_putc(w->out, ']');
  return dbuf_error(w->out) ? (JS_ThrowOutOfMemory(w->ctx), -1) : 0;
}

static int write_object(Writer *w, JSValueConst value) {
  JSPropertyEnum *names;
  uint32_t count;
  if (JS_GetOwnPropertyNames(w->ctx, &names, &count, value, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY)) return -1;
  int failed = 0;
  bool first = true;
  dbuf_putc(w->out, '{');
  for (uint32_t i = 0; i < count && !failed; i++) {
    JSValue item = JS_GetProperty(w->ctx, value, names[i].atom);
    if (JS_IsException(item)) { failed = 1; break; }
    size_t mark = w->out->size;
    if (!first) dbuf_putc(w->out, ',');
    JSValue name = JS_AtomToString(w->ctx, names[i].atom);
    failed = JS_IsException(name) || write_string(w, name);
    JS_FreeValue(w->ctx, name);
    dbuf_putc(w->out, ':');
    if (!failed) {
      int wrote = write_value(w, item, names[i].atom);
      if (wrote < 0) failed = 1;
      else if (wrote == 0) w->out->size = mark; // undefined: as if the property were not there
      else first = false;
    }
    JS_FreeValue(w->ctx, item);
  }
  JS_FreePropertyEnum(w->ctx, names, count);
  if (failed) return -1;
  dbuf_putc(w->out, '}');
  return dbuf_error(w->out) ? (JS_ThrowOutOfMemory(w->ctx), -1) : 0;
}

// Class names as the prelude's `plain` knows them; NULL for what is written property by property.
static const char *odd_class(JSContext *ctx, JSValueConst value) {
  if (JS_IsFunction(ctx, value)) return "Function";
  switch (JS_GetClassID(value)) {
  case JS_CLASS_OBJECT: case JS_CLASS_PROXY: case JS_CLASS_ARGUMENTS: case JS_CLASS_MAPPED_ARGUMENTS: return NULL;
  case JS_CLASS_MAP: return "Map";
  case JS_CLASS_SET: return "Set";
  case JS_CLASS_ERROR: return "Error";
  case JS_CLASS_DATE: return "Date";
  case JS_CLASS_REGEXP: return "RegExp";
  case JS_CLASS_NUMBER: case JS_CLASS_STRING: case JS_CLASS_BOOLEAN: case JS_CLASS_BIG_INT: case JS_CLASS_SYMBOL: return "Boxed";
  case JS_CLASS_ARRAY_BUFFER: return "ArrayBuffer";
  case JS_CLASS_DATAVIEW: return "DataView";
  default: break;
  }
  if (JS_GetTypedArrayType(value) >= 0) return "TypedArray";
  return "Other";
}

// Writes the prelude's stand-in for a value of this class.
static int write_plain(Writer *w, JSValueConst value, const char *class) {
  JSContext *ctx = w->ctx;
  JSValue args[3] = {js_dup(value), JS_NewString(ctx, class), JS_NewInt32(ctx, IS_STRICT(w) ? FOR_ARGUMENTS : w->purpose)};
  JSValue plain = JS_Call(ctx, serialize_hook_plain, JS_UNDEFINED, 3, (JSValueConst *)args);
  JS_FreeValue(ctx, args[0]); JS_FreeValue(ctx, args[1]);
  if (JS_IsException(plain)) return -1;
  if (JS_IsNull(plain)) { // not for arguments
    char what[100];
    snprintf(what, sizeof what, "is a %s, which cannot %s", class[0] == 'O' ? "value without a JSON form" : class, NOT_POSSIBLE(w));
    return refuse(w, JS_ATOM_NULL, what);
  }
  int wrote = write_value(w, plain, JS_ATOM_NULL);
  JS_FreeValue(ctx, plain);
  return wrote;
}

static int write_inside(Writer *w, JSValueConst value, JSAtom key) {
  JSContext *ctx = w->ctx;
  if (JS_IsPromise(value)) {
    if (w->purpose == FOR_LOGS && !tool_of_promise(value)) { dbuf_putstr(w->out, "\"[Promise]\""); return 1; }
    if (w->purpose != FOR_RESULT || JS_PromiseState(ctx, value) != JS_PROMISE_FULFILLED) {
      char path[400] = "";
      if (w->purpose != FOR_LOGS) path_text(w, JS_ATOM_NULL, path, sizeof path);
      throw_is_promise(ctx, value, path);
      return -1;
    }
    JSValue inner = JS_PromiseResult(ctx, value);
    int wrote = write_value(w, inner, JS_ATOM_NULL);
    JS_FreeValue(ctx, inner);
    return wrote;
  }
  JSValue method = JS_GetProperty(ctx, value, JS_ATOM_toJSON);
  if (JS_IsException(method)) return -1;
  if (JS_IsFunction(ctx, method)) {
    JSValue name = JS_AtomToString(ctx, key == JS_ATOM_NULL ? JS_ATOM_empty_string : key);
    JSValue replaced = JS_Call(ctx, method, value, 1, (JSValueConst *)&name);
    JS_FreeValue(ctx, name); JS_FreeValue(ctx, method);
    if (JS_IsException(replaced)) return -1;
    if (JS_VALUE_GET_TAG(replaced) != JS_TAG_OBJECT || JS_VALUE_GET_PTR(replaced) != JS_VALUE_GET_PTR(value)) {
      int wrote = write_value(w, replaced, JS_ATOM_NULL);
      JS_FreeValue(ctx, replaced);
      return wrote;
    }
    JS_FreeValue(ctx, replaced);
  } else JS_FreeValue(ctx, method);
  if (js_is_array(ctx, value) > 0) return write_array(w, value) ? -1 : 1;
  const char *class = odd_class(ctx, value);
  if (!class) return write_object(w, value) ? -1 : 1;
  return write_plain(w, value, class);
}

// 1 written, 0 nothing to write (undefined), -1 exception.
static int write_value(Writer *w, JSValueConst value, JSAtom key) {
  switch (JS_VALUE_GET_NORM_TAG(value)) {
  case JS_TAG_UNDEFINED: return 0;
  case JS_TAG_NULL: dbuf_putstr(w->out, "null"); return 1;
  case JS_TAG_BOOL: dbuf_putstr(w->out, JS_VALUE_GET_BOOL(value) ? "true" : "false"); return 1;
  case JS_TAG_INT: case JS_TAG_FLOAT64: return write_number(w, value) ? -1 : 1;
  case JS_TAG_STRING: case JS_TAG_STRING_ROPE: return write_string(w, value) ? -1 : 1;
  case JS_TAG_BIG_INT: case JS_TAG_SHORT_BIG_INT: return write_big_int(w, value) ? -1 : 1;
  case JS_TAG_SYMBOL:
    if (IS_STRICT(w)) {
      char what[60];
      snprintf(what, sizeof what, "is a Symbol, which cannot %s", NOT_POSSIBLE(w));
      return refuse(w, key, what);
    }
    return write_plain(w, value, "Symbol");
  case JS_TAG_OBJECT: break;
  default: dbuf_putstr(w->out, "null"); return 1;
  }
  if (dbuf_error(w->out)) { JS_ThrowOutOfMemory(w->ctx); return -1; }
  JSObject *object = JS_VALUE_GET_OBJ(value);
  for (int i = 1; i <= w->depth; i++) {
    if (w->above[i] != object) continue;
    if (IS_STRICT(w)) {
      char what[80];
      snprintf(what, sizeof what, "refers back to itself; a cycle cannot %s", NOT_POSSIBLE(w));
      return refuse(w, key, what);
    }
    dbuf_putstr(w->out, "\"[Circular]\"");
    return 1;
  }
  if (w->depth == DEPTH_MAX) {
    if (w->purpose == FOR_LOGS) { dbuf_putstr(w->out, "\"[…]\""); return 1; }
    char path[60];
    path_text(w, JS_ATOM_NULL, path, sizeof path);
    JS_ThrowRangeError(w->ctx, "%s is nested deeper than the limit of %d levels (json_depth); flatten it", w->purpose == FOR_ARGUMENTS ? "arguments" : w->purpose == FOR_STORE ? "value" : "result", DEPTH_MAX);
    return -1;
  }
  w->depth++;
  w->above[w->depth] = object;
  w->keys[w->depth] = key;
  int wrote = write_inside(w, value, key);
  w->depth--;
  return wrote;
}

// 0, or -1 with an exception.
static int serialize(JSContext *ctx, DynBuf *out, JSValueConst value, int purpose) {
  Writer w = {ctx, out, purpose, 0};
  int wrote = write_value(&w, value, JS_ATOM_NULL);
  if (wrote == 0) dbuf_putstr(out, purpose == FOR_LOGS ? "undefined" : "null");
  if (wrote >= 0 && dbuf_error(out)) { JS_ThrowOutOfMemory(ctx); wrote = -1; }
  return wrote < 0 ? -1 : 0;
}

typedef struct { int depth; JSObject *above[DEPTH_MAX + 1]; } Search;

static JSValue find_promise_in(JSContext *ctx, JSValueConst value, Search *s) {
  if (JS_VALUE_GET_TAG(value) != JS_TAG_OBJECT) return JS_UNDEFINED;
  bool promise = JS_IsPromise(value);
  if (promise && JS_PromiseState(ctx, value) != JS_PROMISE_FULFILLED) return js_dup(value);
  JSObject *object = JS_VALUE_GET_OBJ(value);
  bool walked = promise || object->class_id == JS_CLASS_OBJECT || object->class_id == JS_CLASS_ARRAY;
  if (!walked || s->depth == DEPTH_MAX) return JS_UNDEFINED;
  for (int i = 0; i < s->depth; i++)
    if (s->above[i] == object) return JS_UNDEFINED;
  s->above[s->depth++] = object;
  JSValue found = JS_UNDEFINED;
  if (promise) { // fulfilled with a promise: possible when that one has lost its `then`
    JSValue inner = JS_PromiseResult(ctx, value);
    found = find_promise_in(ctx, inner, s);
    JS_FreeValue(ctx, inner);
  } else if (object->fast_array) {
    for (uint32_t i = 0; i < object->u.array.count && JS_IsUndefined(found); i++)
      found = find_promise_in(ctx, object->u.array.u.values[i], s);
  } else {
    JSShapeProperty *shape = get_shape_prop(object->shape);
    for (uint32_t i = 0; i < object->shape->prop_count && JS_IsUndefined(found); i++)
      if (shape[i].atom != JS_ATOM_NULL && (shape[i].flags & JS_PROP_TMASK) == JS_PROP_NORMAL)
        found = find_promise_in(ctx, object->prop[i].u.value, s);
  }
  s->depth--;
  return found;
}

// The first promise inside a value that is not fulfilled. Runs no code of the program.
static JSValue find_promise(JSContext *ctx, JSValueConst value) {
  Search s = {0};
  return find_promise_in(ctx, value, &s);
}
