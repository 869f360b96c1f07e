// The guest: one QuickJS world in one WebAssembly memory.
//
// `boot` runs once, at build time; its memory becomes the image that every program starts from. A program is
// `start`ed, then `settle`d or `tick`ed until it is done, then `finish`ed. Every entry drains the job queue, so the
// host only ever sees a world at rest. The host hears of calls, logs and results through imports.
//
// QuickJS is included, not linked: the result walk, call places and fuel reports read its internals.

// Puts a slot on the shadow stack of every function that checks for overflow. Without it, recursion through
// functions that keep all locals in wasm registers would exhaust the host's stack first, at a depth that depends on the CPU.
#define __builtin_frame_address(level) ({ volatile char here; (void *)&here; })
#include "quickjs.h"
static JSValue import_tools(JSContext *c, JSValueConst module);
static int define_name(JSContext *c, JSObject *object, JSAtom atom);
static int forget_name(JSContext *c, JSObject *object, JSAtom atom);
static int complete_names(JSContext *c, JSObject *object);
#include "engine.c" // quickjs.c with the changes that build.rs names
#include "serialize.h"

#define EXPORT(name) __attribute__((export_name(#name), used)) name
#define IMPORT(name) __attribute__((import_module("host"), import_name(#name)))

IMPORT(call) extern int32_t host_call(uint32_t tool, const void *args, uint32_t len);
IMPORT(log) extern void host_log(uint32_t level, const void *text, uint32_t len);
IMPORT(report) extern void host_report(uint32_t kind, const void *json, uint32_t len);
IMPORT(frame) extern void host_frame(int32_t line, int32_t column);
IMPORT(ask) extern int32_t host_ask(uint32_t question, const void *text, uint32_t len);
IMPORT(listed) extern int32_t host_listed(uint32_t list, const void *name, uint32_t len);
IMPORT(read) extern void host_read(void *into);
IMPORT(compare) extern int32_t host_compare(const void *a, uint32_t alen, const void *b, uint32_t blen, uint32_t options);

enum { REPORT_RESULT, REPORT_ERROR, REPORT_UNHANDLED };
enum { PENDING, WAITING_FOR_TIMER, FULFILLED, REJECTED };
enum { ANSWER_JSON, ANSWER_JSON_WITH_BIG_INTEGERS, ANSWER_TEXT, ANSWER_ERROR };
enum { ENTRY_LISTED, ENTRY_UNKNOWN, ENTRY_HABIT, ENTRY_PATH, ENTRY_OTHER_NAME };
enum { ASK_MEANING = 4, ASK_NAMES, ASK_EXPRESSION, ASK_STORE = 8 };
enum { MEANS_FUNCTION, MEANS_NAMESPACE, MEANS_PATH, MEANS_GLOBAL, MEANS_NOTHING };
enum { IN_TOOLS, IN_NAMESPACE, IN_PATH, IN_MODULE };

#define INBOX_BYTES 65536
#define NAME_BYTES_MAX 512 // longer names are names of nothing, and are cut where they are told
#define UNHANDLED_MAX 100
#define GLOBAL_ARGS_MAX 2

// ---- the world ----

static JSRuntime *rt;
static JSContext *ctx;
static double now_ms, started_ms;
static uint64_t entropy[4];
static JSValue main_promise = JS_UNDEFINED;
static JSValue tools_object = JS_UNDEFINED;
// Hooks that the prelude hands over: see the end of prelude.js.
static JSValue hook_revive, hook_describe, hook_tool_error, hook_habit, hook_import;
uint8_t inbox[INBOX_BYTES]; // small messages of the host are laid here
static JSAtom program_atom;

typedef struct {
  JSValue resolve, reject;
  JSValue caller; // function that made the call, and where, for the stack of a ToolError
  uint32_t caller_pc;
  uint32_t tool;
} Slot;
static Slot *slots;
static uint32_t slot_count, slot_capacity;

typedef struct {
  double due, interval; // interval < 0: once
  uint32_t order, id;
  JSValue callback;
  JSValue args;
} Timer;
static Timer *timers; // binary heap by (due, order)
static uint32_t timer_count, timer_capacity, timer_order, timer_id;

static JSValue unhandled[UNHANDLED_MAX][2]; // promise, reason
static uint32_t unhandled_count, unhandled_reported;
static bool finishing;

double __rquickjs_host_now_us(void) { return now_ms * 1000.0; }

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
static uint64_t next_random(void) { // xoshiro256**
  uint64_t result = rotl(entropy[1] * 5, 7) * 9, t = entropy[1] << 17;
  entropy[2] ^= entropy[0]; entropy[3] ^= entropy[1]; entropy[1] ^= entropy[2]; entropy[0] ^= entropy[3];
  entropy[2] ^= t; entropy[3] = rotl(entropy[3], 45);
  return result;
}

static JSValue take_host_text(int32_t len) {
  char *buffer = js_malloc(ctx, len + 1);
  if (!buffer) return JS_EXCEPTION;
  host_read(buffer);
  JSValue text = JS_NewStringLen(ctx, buffer, len);
  js_free(ctx, buffer);
  return text;
}

// The engine cuts formatted messages short; ours carry lists of tools and violations.
static JSValue throw_message(JSValue (*throw_error)(JSContext *, const char *, ...), JSValueConst message) {
  throw_error(ctx, "%s", "");
  JSValue error = JS_GetException(ctx);
  JS_DefinePropertyValue(ctx, error, JS_ATOM_message, js_dup(message), JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
  return JS_Throw(ctx, error);
}

static JSValue rejected_promise(void) {
  JSValue reason = JS_GetException(ctx);
  JSValue promise = JS_NewSettledPromise(ctx, true, reason);
  JS_FreeValue(ctx, reason);
  return promise;
}

// ---- promises are no values ----

// What a program calls tool number `tool`, for messages.
static JSValue tool_expression(uint32_t tool) {
  int32_t len = host_ask(ASK_EXPRESSION, &tool, 4);
  return take_host_text(len < 0 ? 0 : len);
}

// The number of the tool whose answer a promise waits for, plus 1; 0 for any other promise.
static uint32_t tool_of_promise(JSValueConst promise) { return ((JSPromiseData *)JS_GetOpaque(promise, JS_CLASS_PROMISE))->tool; }

// Throws that a promise was taken for its value. `path` says where it stands, or is empty.
static void throw_is_promise(JSContext *c, JSValueConst promise, const char *path) {
  uint32_t tool = tool_of_promise(promise);
  JSValue name = tool ? tool_expression(tool - 1) : JS_UNDEFINED;
  if (JS_IsException(name)) return;
  const char *text = tool ? JS_ToCString(c, name) : NULL;
  if (text) JS_ThrowTypeError(c, "%s%s`%.80s(…)` is a promise: write `await` before it", path, path[0] ? ": " : "", text);
  else JS_ThrowTypeError(c, "%s is a promise: write `await` before it", path[0] ? path : "this");
  if (text) JS_FreeCString(c, text);
  JS_FreeValue(c, name);
}

static bool is_symbol(JSAtom atom) { return JS_AtomGetKind(ctx, atom) != JS_ATOM_KIND_STRING; }

// The prototype of `Promise.prototype`: asked for what promises do not have.
static JSClassID promise_guard_class;
static JSValue guard_get(JSContext *c, JSValueConst object, JSAtom atom, JSValueConst receiver) {
  bool promise = JS_IsPromise(receiver);
  bool as_value = atom == JS_ATOM_toString || atom == JS_ATOM_toLocaleString || atom == JS_ATOM_toJSON
    || atom == JS_ATOM_Symbol_toPrimitive || atom == JS_ATOM_Symbol_iterator;
  if (!promise || !as_value) {
    JSValue inherited = JS_GetPropertyInternal(c, ctx->class_proto[JS_CLASS_OBJECT], atom, receiver, false);
    if (!promise || !JS_IsUndefined(inherited) || is_symbol(atom)) return inherited;
  }
  throw_is_promise(c, receiver, "");
  return JS_EXCEPTION;
}
static const JSClassExoticMethods guard_exotic = {.get_property = guard_get};
static const JSClassDef guard_def = {"Promise", .exotic = (JSClassExoticMethods *)&guard_exotic};

// `{...promise}` and `Object.keys(promise)` would be empty.
static int promise_names(JSContext *c, JSPropertyEnum **names, uint32_t *count, JSValueConst promise) {
  throw_is_promise(c, promise, "");
  return -1;
}
static const JSClassExoticMethods promise_exotic = {.get_own_property_names = promise_names};

// ---- calls ----

static void remember_caller(Slot *slot) {
  slot->caller = JS_UNDEFINED;
  for (JSStackFrame *frame = rt->current_stack_frame; frame; frame = frame->prev_frame) {
    JSObject *function = JS_VALUE_GET_OBJ(frame->cur_func);
    if (js_class_has_bytecode(function->class_id) && frame->cur_pc) {
      slot->caller = js_dup(frame->cur_func);
      slot->caller_pc = frame->cur_pc - function->u.func.function_bytecode->byte_code_buf - 1;
      return;
    }
  }
}

// Set in a tool's number: the call asks for a new execution; its arguments were written one by one.
#define FRESH 0x80000000u
#define POSITIONAL 0x40000000u

// Throws the TypeError that a refusal `{message, …}` asks for; its other fields become properties of the error.
static void throw_refusal(JSValue text) {
  if (JS_IsException(text)) return;
  size_t len;
  const char *json = JS_ToCStringLen(ctx, &len, text);
  JS_FreeValue(ctx, text);
  JSValue refusal = json ? JS_ParseJSON(ctx, json, len, "refusal") : JS_EXCEPTION;
  if (json) JS_FreeCString(ctx, json);
  if (JS_IsException(refusal)) return;
  JSValue message = JS_GetProperty(ctx, refusal, JS_ATOM_message);
  throw_message(JS_ThrowTypeError, message);
  JS_FreeValue(ctx, message);
  static const char *const fields[] = {"tool", "violations"};
  JSValue error = JS_GetException(ctx);
  for (int i = 0; i < 2; i++) {
    JSValue field = JS_GetPropertyStr(ctx, refusal, fields[i]);
    if (!JS_IsUndefined(field)) JS_DefinePropertyValueStr(ctx, error, fields[i], field, JS_PROP_C_W_E);
  }
  JS_FreeValue(ctx, refusal);
  JS_Throw(ctx, error);
}

// A promise for the answer to a call with these arguments, which are freed.
static JSValue issue(uint32_t tool, DynBuf *args) {
  if (finishing) { // nobody would hear of it
    dbuf_free(args);
    JS_ThrowTypeError(ctx, "a tool was called while the result was written; call tools before returning");
    return rejected_promise();
  }
  // Room first: once the host has numbered the call, it must not get lost.
  if (slot_count == slot_capacity) {
    uint32_t capacity = slot_capacity ? slot_capacity * 2 : 16;
    Slot *grown = js_realloc(ctx, slots, capacity * sizeof(Slot));
    if (!grown) { dbuf_free(args); return rejected_promise(); }
    slots = grown; slot_capacity = capacity;
  }
  JSValue functions[2], promise = JS_NewPromiseCapability(ctx, functions);
  if (JS_IsException(promise)) { dbuf_free(args); return promise; }
  int32_t answer = host_call(tool, args->buf, args->size);
  dbuf_free(args);
  if (answer < 0) { // refused: -(bytes of the refusal) - 1
    JS_FreeValue(ctx, functions[0]); JS_FreeValue(ctx, functions[1]); JS_FreeValue(ctx, promise);
    throw_refusal(take_host_text(-answer - 1));
    return rejected_promise();
  }
  tool &= ~(FRESH | POSITIONAL);
  ((JSPromiseData *)JS_GetOpaque(promise, JS_CLASS_PROMISE))->tool = tool + 1;
  Slot *slot = &slots[slot_count++];
  *slot = (Slot){functions[0], functions[1], JS_UNDEFINED, 0, tool};
  remember_caller(slot);
  return promise;
}

// Whether the engine itself calls this function, as `map` and `Array.from` do: they pass more than the item.
static bool is_called_by_engine(void) {
  JSStackFrame *caller = rt->current_stack_frame ? rt->current_stack_frame->prev_frame : NULL;
  if (!caller) return true;
  JSObject *function = JS_VALUE_GET_OBJ(caller->cur_func);
  if (function->class_id != JS_CLASS_C_FUNCTION) return false;
  JSCFunction *native = function->u.cfunc.c_function.generic;
  return native != js_function_call && native != (JSCFunction *)js_function_apply && native != js_reflect_apply;
}

// `f(args, {fresh: true})`: 1 if this is such an option, -1 with an exception.
static int asks_for_fresh(JSValueConst option) {
  if (!JS_IsObject(option)) return 0;
  JSValue value = JS_GetPropertyStr(ctx, option, "fresh");
  if (JS_IsException(value)) return -1;
  int fresh = JS_IsBool(value) && JS_VALUE_GET_BOOL(value);
  JS_FreeValue(ctx, value);
  return fresh;
}

static JSValue js_call_tool(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv, int magic) {
  DynBuf args;
  uint32_t tool = (uint16_t)magic;
  while (argc && JS_IsUndefined(argv[argc - 1])) argc--;
  if (argc > 1 && is_called_by_engine()) argc = 1;
  if (argc > 1) {
    int fresh = asks_for_fresh(argv[argc - 1]);
    if (fresh < 0) return rejected_promise();
    if (fresh) { tool |= FRESH; argc--; }
  }
  js_dbuf_init(ctx, &args);
  dbuf_putc(&args, '[');
  for (int i = 0; i < argc; i++) {
    if (i) dbuf_putc(&args, ',');
    if (serialize(ctx, &args, argv[i], FOR_ARGUMENTS)) { dbuf_free(&args); return rejected_promise(); }
  }
  if (argc == 1 && args.buf[1] == '{') { // one object, as it should be
    memmove(args.buf, args.buf + 1, --args.size);
    return issue(tool, &args);
  }
  if (argc == 0) {
    args.size = 0;
    dbuf_putstr(&args, "{}");
    return issue(tool, &args);
  }
  dbuf_putc(&args, ']');
  return issue(tool | POSITIONAL, &args);
}

static JSValue js_call_global(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv, int magic) {
  DynBuf args;
  js_dbuf_init(ctx, &args);
  dbuf_putc(&args, '[');
  for (int i = 0; i < argc && i < GLOBAL_ARGS_MAX; i++) {
    if (i) dbuf_putc(&args, ',');
    if (serialize(ctx, &args, argv[i], FOR_ARGUMENTS)) { dbuf_free(&args); return rejected_promise(); }
  }
  dbuf_putc(&args, ']');
  return issue((uint16_t)magic, &args);
}

static JSValue answer_value(Slot *slot, uint32_t kind, const char *text, uint32_t len) {
  if (kind == ANSWER_TEXT) return JS_NewStringLen(ctx, text, len);
  if (kind == ANSWER_JSON_WITH_BIG_INTEGERS) {
    JSValue source = JS_NewStringLen(ctx, text, len);
    if (JS_IsException(source)) return source;
    JSValue value = JS_Call(ctx, hook_revive, JS_UNDEFINED, 1, (JSValueConst *)&source);
    JS_FreeValue(ctx, source);
    return value;
  }
  JSValue value = JS_ParseJSON(ctx, text, len, "answer");
  if (kind == ANSWER_JSON || JS_IsException(value)) return value;
  // An error: {message, tool, data?}. Its stack points at the call.
  char place[64] = "";
  if (!JS_IsUndefined(slot->caller)) {
    int column, line = find_line_num(ctx, JS_VALUE_GET_OBJ(slot->caller)->u.func.function_bytecode, slot->caller_pc, &column);
    snprintf(place, sizeof place, "    at program:%d:%d\n", line, column);
  }
  JSValue args[2] = {value, JS_NewString(ctx, place)};
  JSValue error = JS_Call(ctx, hook_tool_error, JS_UNDEFINED, 2, (JSValueConst *)args);
  JS_FreeValue(ctx, args[0]); JS_FreeValue(ctx, args[1]);
  return error;
}

#include "name_lists.h"
#include "names.h"

// ---- timers on the virtual clock ----

static bool timer_before(const Timer *a, const Timer *b) { return a->due != b->due ? a->due < b->due : a->order < b->order; }
static void timer_sift_down(uint32_t i) {
  for (;;) {
    uint32_t least = i, left = 2 * i + 1;
    if (left < timer_count && timer_before(&timers[left], &timers[least])) least = left;
    if (left + 1 < timer_count && timer_before(&timers[left + 1], &timers[least])) least = left + 1;
    if (least == i) return;
    Timer held = timers[i]; timers[i] = timers[least]; timers[least] = held;
    i = least;
  }
}
static void timer_sift_up(uint32_t i) {
  while (i && timer_before(&timers[i], &timers[(i - 1) / 2])) {
    Timer held = timers[i]; timers[i] = timers[(i - 1) / 2]; timers[(i - 1) / 2] = held;
    i = (i - 1) / 2;
  }
}
static int timer_push(Timer timer) {
  if (timer_count == timer_capacity) {
    uint32_t capacity = timer_capacity ? timer_capacity * 2 : 8;
    Timer *grown = js_realloc(ctx, timers, capacity * sizeof(Timer));
    if (!grown) return -1;
    timers = grown; timer_capacity = capacity;
  }
  timers[timer_count] = timer;
  timer_sift_up(timer_count++);
  return 0;
}
static Timer timer_remove(uint32_t i) {
  Timer removed = timers[i];
  timers[i] = timers[--timer_count];
  if (i < timer_count) { timer_sift_down(i); timer_sift_up(i); }
  return removed;
}
static void timer_free(Timer timer) { JS_FreeValue(ctx, timer.callback); JS_FreeValue(ctx, timer.args); }

// native.setTimer(callback, ms, repeat, args)
static JSValue js_set_timer(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  double ms;
  if (JS_ToFloat64(ctx, &ms, argv[1])) return JS_EXCEPTION;
  if (!(ms >= 1)) ms = 1;
  if (ms > 8.64e15) ms = 8.64e15;
  ms = trunc(ms);
  Timer timer = {now_ms + ms, JS_ToBool(ctx, argv[2]) ? ms : -1, timer_order++, ++timer_id, js_dup(argv[0]), js_dup(argv[3])};
  if (timer_push(timer)) { timer_free(timer); return JS_EXCEPTION; }
  return JS_NewUint32(ctx, timer.id);
}
static JSValue js_clear_timer(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  if (!JS_IsNumber(argv[0])) return JS_UNDEFINED;
  uint32_t id;
  if (JS_ToUint32(ctx, &id, argv[0])) return JS_EXCEPTION;
  for (uint32_t i = 0; i < timer_count; i++)
    if (timers[i].id == id) { timer_free(timer_remove(i)); break; }
  return JS_UNDEFINED;
}

// ---- what else the prelude may ask for ----

static JSValue js_ask(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  uint32_t question;
  size_t len;
  if (JS_ToUint32(ctx, &question, argv[0])) return JS_EXCEPTION;
  const char *text = JS_ToCStringLen(ctx, &len, argv[1]);
  if (!text) return JS_EXCEPTION;
  int32_t answer = host_ask(question, text, len);
  JS_FreeCString(ctx, text);
  return answer < 0 ? JS_UNDEFINED : take_host_text(answer);
}
static JSValue js_compare(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  size_t alen, blen;
  uint32_t options;
  if (JS_ToUint32(ctx, &options, argv[2])) return JS_EXCEPTION;
  const char *a = JS_ToCStringLen(ctx, &alen, argv[0]);
  if (!a) return JS_EXCEPTION;
  const char *b = JS_ToCStringLen(ctx, &blen, argv[1]);
  if (!b) { JS_FreeCString(ctx, a); return JS_EXCEPTION; }
  int32_t order = host_compare(a, alen, b, blen, options);
  JS_FreeCString(ctx, a); JS_FreeCString(ctx, b);
  return JS_NewInt32(ctx, order);
}
static JSValue js_emit(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  uint32_t level;
  size_t len;
  if (JS_ToUint32(ctx, &level, argv[0])) return JS_EXCEPTION;
  const char *text = JS_ToCStringLen(ctx, &len, argv[1]);
  if (!text) return JS_EXCEPTION;
  host_log(level, text, len);
  JS_FreeCString(ctx, text);
  return JS_UNDEFINED;
}
static JSValue js_show(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  DynBuf out;
  js_dbuf_init(ctx, &out);
  JSValue text = serialize(ctx, &out, argv[0], FOR_LOGS) ? JS_EXCEPTION : JS_NewStringLen(ctx, (char *)out.buf, out.size);
  dbuf_free(&out);
  return text;
}
// native.store(name, value): keeps a value for later programs; `undefined` removes it.
static JSValue js_store(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  size_t len;
  const char *name = JS_ToCStringLen(ctx, &len, argv[0]);
  if (!name) return JS_EXCEPTION;
  DynBuf out;
  js_dbuf_init(ctx, &out);
  uint32_t name_len = len;
  dbuf_put(&out, (const uint8_t *)&name_len, 4);
  dbuf_put(&out, (const uint8_t *)name, len);
  JS_FreeCString(ctx, name);
  int failed = JS_IsUndefined(argv[1]) ? 0 : serialize(ctx, &out, argv[1], FOR_STORE);
  if (!failed) host_ask(ASK_STORE, out.buf, out.size);
  dbuf_free(&out);
  return failed ? JS_EXCEPTION : JS_UNDEFINED;
}
static JSValue js_now(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) { return JS_NewFloat64(ctx, now_ms); }
static JSValue js_started(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) { return JS_NewFloat64(ctx, started_ms); }
static JSValue js_fill_random(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  size_t len;
  uint8_t *bytes = JS_GetUint8Array(ctx, &len, argv[0]);
  if (!bytes) return JS_EXCEPTION;
  for (size_t i = 0; i < len; i += 8) {
    uint64_t word = next_random();
    memcpy(bytes + i, &word, len - i < 8 ? len - i : 8);
  }
  return JS_UNDEFINED;
}
static JSValue js_encode_utf8(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  size_t len;
  const char *text = JS_ToCStringLen(ctx, &len, argv[0]);
  if (!text) return JS_EXCEPTION;
  JSValue bytes = JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text, len);
  JS_FreeCString(ctx, text);
  return bytes;
}
// WHATWG UTF-8 decoding of a Uint8Array; undefined when `fatal` and malformed.
static JSValue js_decode_utf8(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  size_t len;
  uint8_t *bytes = JS_GetUint8Array(ctx, &len, argv[0]);
  if (!bytes) return JS_EXCEPTION;
  bool fatal = JS_ToBool(ctx, argv[1]);
  uint16_t *units = js_malloc(ctx, (len + 1) * 2);
  if (!units) return JS_EXCEPTION;
  size_t n = 0, i = 0;
  while (i < len) {
    uint8_t lead = bytes[i++];
    if (lead < 0x80) { units[n++] = lead; continue; }
    int need = lead >= 0xc2 && lead <= 0xdf ? 1 : (lead & 0xf0) == 0xe0 ? 2 : lead >= 0xf0 && lead <= 0xf4 ? 3 : 0;
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    uint32_t point = need == 1 ? lead & 0x1f : need == 2 ? lead & 0x0f : lead & 0x07;
    bool good = need > 0;
    for (int k = 0; good && k < need; k++) {
      if (i >= len || bytes[i] < low || bytes[i] > high) { good = false; break; }
      point = point << 6 | (bytes[i++] & 0x3f);
      low = 0x80; high = 0xbf;
    }
    if (!good) {
      if (fatal) { js_free(ctx, units); return JS_UNDEFINED; }
      units[n++] = 0xfffd;
    } else if (point >= 0x10000) {
      point -= 0x10000;
      units[n++] = 0xd800 | point >> 10; units[n++] = 0xdc00 | (point & 0x3ff);
    } else units[n++] = point;
  }
  JSValue text = JS_NewStringUTF16(ctx, units, n);
  js_free(ctx, units);
  return text;
}

static const struct { const char *name; JSCFunction *function; int length; } natives[] = {
  {"ask", js_ask, 2}, {"compare", js_compare, 3}, {"emit", js_emit, 2}, {"show", js_show, 1}, {"now", js_now, 0},
  {"started", js_started, 0}, {"setTimer", js_set_timer, 4}, {"clearTimer", js_clear_timer, 1},
  {"module", js_module, 1}, {"store", js_store, 2}, {"fillRandom", js_fill_random, 1}, {"encodeUtf8", js_encode_utf8, 1}, {"decodeUtf8", js_decode_utf8, 2},
};

// ---- boot: runs at build time ----

static void on_rejection(JSContext *c, JSValueConst promise, JSValueConst reason, bool is_handled, void *opaque) {
  if (!is_handled) {
    if (unhandled_count == UNHANDLED_MAX) return;
    unhandled[unhandled_count][0] = js_dup(promise);
    unhandled[unhandled_count++][1] = js_dup(reason);
    return;
  }
  for (uint32_t i = 0; i < unhandled_count; i++) {
    if (JS_VALUE_GET_PTR(unhandled[i][0]) != JS_VALUE_GET_PTR(promise)) continue;
    JS_FreeValue(c, unhandled[i][0]); JS_FreeValue(c, unhandled[i][1]);
    memmove(&unhandled[i], &unhandled[i + 1], (--unhandled_count - i) * sizeof unhandled[0]);
    return;
  }
}

static int new_engine(void) {
  rt = JS_NewRuntime();
  if (!rt) return -1;
  JS_SetMaxStackSize(rt, BOOT_STACK_BYTES / 2);
  ctx = JS_NewContext(rt);
  return ctx ? 0 : -1;
}
static int boot_failed(void) {
  JSValue error = JS_GetException(ctx), stack = JS_GetPropertyStr(ctx, error, "stack");
  const char *text = JS_ToCString(ctx, error), *place = JS_ToCString(ctx, stack);
  if (text) host_log(4, text, strlen(text));
  if (place) host_log(4, place, strlen(place));
  return -1;
}

static uint32_t compiled_bytes;

// Compiles a script, in an engine of its own: the memory that this takes would lie between what programs use. The text of
// functions is left out; it would be a third of the memory that is reset after each program.
uint8_t *EXPORT(compile)(char *source, uint32_t len) {
  if (new_engine()) return NULL;
  JSValue script = JS_Eval(ctx, source, len, "prelude", JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_COMPILE_ONLY);
  size_t bytes = 0;
  uint8_t *compiled = JS_IsException(script) ? NULL : JS_WriteObject(ctx, &bytes, script, JS_WRITE_OBJ_BYTECODE | JS_WRITE_OBJ_STRIP_SOURCE);
  compiled_bytes = bytes;
  if (!compiled) boot_failed();
  return compiled;
}
uint32_t EXPORT(compiled_len)(void) { return compiled_bytes; }

// Calls the function that is the value of a compiled script.
static JSValue call_compiled(uint8_t *bytes, uint32_t len, JSValueConst arg) {
  JSValue script = JS_ReadObject(ctx, bytes, len, JS_READ_OBJ_BYTECODE);
  free(bytes);
  if (JS_IsException(script)) return script;
  JSValue function = JS_EvalFunction(ctx, script);
  if (JS_IsException(function)) return function;
  JSValue result = JS_Call(ctx, function, JS_UNDEFINED, 1, &arg);
  JS_FreeValue(ctx, function);
  return result;
}

#define ROOM_FOR_PROGRAMS (256 * 1024)

// Both scripts are compiled, and in memory of `room`.
int EXPORT(boot)(uint8_t *prelude, uint32_t prelude_len, uint8_t *intl, uint32_t intl_len) {
  now_ms = 1e12;
  if (new_engine()) return -1;
  JS_NewClassID(rt, &names_class);
  if (JS_NewClass(rt, names_class, &names_def)) return -1;
  JS_NewClassID(rt, &promise_guard_class);
  if (JS_NewClass(rt, promise_guard_class, &guard_def)) return -1;
  rt->class_array[JS_CLASS_PROMISE].exotic = &promise_exotic;
  JSValue guard = JS_NewObjectProtoClass(ctx, ctx->class_proto[JS_CLASS_OBJECT], promise_guard_class);
  if (JS_SetPrototype(ctx, ctx->class_proto[JS_CLASS_PROMISE], guard) < 0) return -1;
  JS_FreeValue(ctx, guard);

  // Stack traces must not hand out functions: through those of the prelude a program would reach its natives.
  JSAtom get_function = JS_NewAtom(ctx, "getFunction");
  JS_DeleteProperty(ctx, ctx->class_proto[JS_CLASS_CALL_SITE], get_function, 0);
  JS_FreeAtom(ctx, get_function);

  tools_object = new_names(IN_TOOLS, 0, "", 0);
  JS_DefinePropertyValueStr(ctx, ctx->global_obj, "tools", js_dup(tools_object), JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
  JSValue native = JS_NewObject(ctx);
  JS_SetPropertyStr(ctx, native, "tools", js_dup(tools_object));
  for (size_t i = 0; i < sizeof natives / sizeof natives[0]; i++)
    JS_SetPropertyStr(ctx, native, natives[i].name, JS_NewCFunction(ctx, natives[i].function, natives[i].name, natives[i].length));
  JSValue hooks = call_compiled(prelude, prelude_len, native);
  JS_FreeValue(ctx, native);
  if (JS_IsException(hooks)) return boot_failed();
  JSValue intl_host = JS_GetPropertyStr(ctx, hooks, "intl");
  JSValue installed = call_compiled(intl, intl_len, intl_host);
  JS_FreeValue(ctx, intl_host);
  if (JS_IsException(installed)) return boot_failed();
  JS_FreeValue(ctx, installed);
  hook_revive = JS_GetPropertyStr(ctx, hooks, "revive");
  hook_describe = JS_GetPropertyStr(ctx, hooks, "describe");
  hook_tool_error = JS_GetPropertyStr(ctx, hooks, "toolError");
  hook_habit = JS_GetPropertyStr(ctx, hooks, "habit");
  hook_import = JS_GetPropertyStr(ctx, hooks, "imported");
  serialize_hook_plain = JS_GetPropertyStr(ctx, hooks, "plain");
  JS_FreeValue(ctx, hooks);

  program_atom = JS_NewAtom(ctx, "program");
  JSContext *c;
  while (JS_ExecutePendingJob(rt, &c) > 0) {}
  namespaces = JS_NewObjectProto(ctx, JS_NULL);
  if (JS_IsException(namespaces) || boot_names()) return boot_failed();
  JS_SetHostPromiseRejectionTracker(rt, on_rejection, NULL);
  JS_RunGC(rt);
  // Most programs need no more, so that their memory does not grow: one that has grown serves only one program.
  void *volatile room_for_programs = malloc(ROOM_FOR_PROGRAMS);
  free(room_for_programs);
  return 0;
}

// ---- a program's life ----

void *EXPORT(room)(uint32_t len) { return malloc(len); }
static void done_with(void *message) { if (message != inbox) free(message); }

static void report(uint32_t kind, JSValueConst value, int purpose) {
  DynBuf out;
  js_dbuf_init(ctx, &out);
  if (serialize(ctx, &out, value, purpose)) {
    dbuf_free(&out);
    js_dbuf_init(ctx, &out);
    dbuf_putstr(&out, "null");
    JS_FreeValue(ctx, JS_GetException(ctx));
  }
  host_report(kind, out.buf, out.size);
  dbuf_free(&out);
}
static void report_error(uint32_t kind, JSValueConst reason) {
  if (kind == REPORT_UNHANDLED && unhandled_reported++ >= UNHANDLED_MAX) return;
  JSValue described = JS_Call(ctx, hook_describe, JS_UNDEFINED, 1, &reason);
  if (JS_IsException(described)) { JS_FreeValue(ctx, JS_GetException(ctx)); described = JS_NULL; }
  report(kind, described, FOR_LOGS);
  JS_FreeValue(ctx, described);
}

static int drain(void) {
  JSContext *c;
  int ran;
  while ((ran = JS_ExecutePendingJob(rt, &c)) != 0) {
    if (ran > 0) continue;
    JSValue error = JS_GetException(c);
    report_error(REPORT_UNHANDLED, error);
    JS_FreeValue(c, error);
  }
  int pending = timer_count ? WAITING_FOR_TIMER : PENDING;
  switch (JS_PromiseState(ctx, main_promise)) {
  case JS_PROMISE_PENDING: return pending;
  case JS_PROMISE_REJECTED: return REJECTED;
  default: break;
  }
  // Promises inside the result are awaited: a forgotten `await` must not turn into `{}`.
  JSValue result = JS_PromiseResult(ctx, main_promise);
  JSValue inner = find_promise(ctx, result);
  JS_FreeValue(ctx, result);
  if (JS_IsUndefined(inner)) return FULFILLED;
  JS_PromiseMarkAsHandled(ctx, inner);
  bool rejected = JS_PromiseState(ctx, inner) == JS_PROMISE_REJECTED;
  if (rejected) {
    on_rejection(ctx, inner, JS_UNDEFINED, true, NULL);
    JS_FreeValue(ctx, main_promise);
    main_promise = inner;
    return REJECTED;
  }
  JS_FreeValue(ctx, inner);
  return pending;
}

typedef struct {
  double started_ms;
  uint64_t entropy[4];
  uint64_t random_state;
  uint32_t stack_bytes, names_bytes, code_bytes;
} Start;

int EXPORT(start)(uint8_t *message) {
  Start header;
  memcpy(&header, message, sizeof header);
  now_ms = started_ms = header.started_ms;
  memcpy(entropy, header.entropy, sizeof entropy);
  ctx->random_state = header.random_state | 1;
  JS_UpdateStackTop(rt);
  JS_SetMaxStackSize(rt, header.stack_bytes);
  uint8_t *names = message + sizeof header;
  const char *code = (const char *)names + header.names_bytes;
  if (install(names, names + header.names_bytes)) main_promise = rejected_promise();
  else {
    main_promise = JS_Eval(ctx, code, header.code_bytes, "program", JS_EVAL_TYPE_GLOBAL);
    if (JS_IsException(main_promise)) main_promise = rejected_promise();
  }
  JS_PromiseMarkAsHandled(ctx, main_promise);
  done_with(message);
  return drain();
}

int EXPORT(settle)(uint32_t call, uint32_t kind, uint8_t *text, uint32_t len) {
  JS_UpdateStackTop(rt);
  Slot *slot = &slots[call];
  JSValue value = answer_value(slot, kind, (char *)text, len);
  done_with(text);
  bool failed = kind == ANSWER_ERROR;
  if (JS_IsException(value)) { value = JS_GetException(ctx); failed = true; }
  slot = &slots[call];
  JSValue resolve = slot->resolve, reject = slot->reject;
  JS_FreeValue(ctx, slot->caller);
  slot->resolve = slot->reject = slot->caller = JS_UNDEFINED;
  JSValue ignored = JS_Call(ctx, failed ? reject : resolve, JS_UNDEFINED, 1, (JSValueConst *)&value);
  JS_FreeValue(ctx, ignored); JS_FreeValue(ctx, value); JS_FreeValue(ctx, resolve); JS_FreeValue(ctx, reject);
  return drain();
}

int EXPORT(tick)(void) {
  JS_UpdateStackTop(rt);
  Timer timer = timer_remove(0);
  if (timer.due > now_ms) now_ms = timer.due;
  if (timer.interval >= 0) {
    Timer again = {now_ms + timer.interval, timer.interval, timer_order++, timer.id, js_dup(timer.callback), js_dup(timer.args)};
    if (timer_push(again)) { timer_free(again); JS_FreeValue(ctx, JS_GetException(ctx)); }
  }
  uint32_t count;
  JSValue *args = build_arg_list(ctx, &count, timer.args);
  JSValue result = args ? JS_Call(ctx, timer.callback, JS_UNDEFINED, count, (JSValueConst *)args) : JS_EXCEPTION;
  if (JS_IsException(result)) {
    JSValue error = JS_GetException(ctx);
    report_error(REPORT_UNHANDLED, error);
    JS_FreeValue(ctx, error);
  }
  JS_FreeValue(ctx, result);
  if (args) free_arg_list(ctx, args, count);
  timer_free(timer);
  return drain();
}

// Reports the result or the error, and the rejections that nobody handled.
void EXPORT(finish)(void) {
  JS_UpdateStackTop(rt);
  finishing = true;
  JSValue value = JS_PromiseResult(ctx, main_promise);
  bool failed = JS_PromiseState(ctx, main_promise) == JS_PROMISE_REJECTED;
  DynBuf out;
  js_dbuf_init(ctx, &out);
  if (!failed && serialize(ctx, &out, value, FOR_RESULT)) {
    JS_FreeValue(ctx, value);
    value = JS_GetException(ctx);
    failed = true;
  }
  for (uint32_t i = 0; i < unhandled_count; i++) report_error(REPORT_UNHANDLED, unhandled[i][1]);
  if (failed) report_error(REPORT_ERROR, value);
  else host_report(REPORT_RESULT, out.buf, out.size);
  dbuf_free(&out);
  JS_FreeValue(ctx, value);
}

// After a trap: where the program was. Reads only, since the trap may have come in the middle of anything.
void EXPORT(where)(void) {
  int told = 0;
  for (JSStackFrame *frame = rt->current_stack_frame; frame && told < 10; frame = frame->prev_frame) {
    JSObject *function = JS_VALUE_GET_OBJ(frame->cur_func);
    if (!js_class_has_bytecode(function->class_id)) continue;
    JSFunctionBytecode *b = function->u.func.function_bytecode;
    int column = b->col_num, line = b->line_num;
    if (frame->cur_pc) line = find_line_num(ctx, b, frame->cur_pc - b->byte_code_buf - 1, &column);
    if (b->filename == program_atom) { host_frame(line, column); told++; }
  }
}
