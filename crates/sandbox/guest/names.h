// Namespaces, paths, modules and `tools`: objects with names of tools. The host says what the names mean.

static JSClassID names_class;

// What an object with names stands for.
typedef struct {
  uint32_t kind;      // IN_TOOLS, …
  uint32_t namespace; // its number, for IN_NAMESPACE
  uint32_t len;
  char text[];        // `a.b` for IN_PATH, the module for IN_MODULE
} Place;

static JSValue new_names(uint32_t kind, uint32_t namespace, const char *text, uint32_t len);

// Asks what a name means there. The length of the reply, which is to be read; -1 with an exception.
static int32_t ask_meaning(const Place *place, JSAtom atom) {
  size_t len;
  const char *name = JS_AtomToCStringLen(ctx, &len, atom);
  if (!name) return -1;
  uint8_t question[12 + 2 * NAME_BYTES_MAX];
  uint32_t sent = len > NAME_BYTES_MAX ? NAME_BYTES_MAX : len;
  memcpy(question, &place->kind, 4); memcpy(question + 4, &place->namespace, 4); memcpy(question + 8, &place->len, 4);
  memcpy(question + 12, place->text, place->len); memcpy(question + 12 + place->len, name, sent);
  JS_FreeCString(ctx, name);
  return host_ask(ASK_MEANING, question, 12 + place->len + sent);
}

// The function with this name in `tools` or in a namespace; a new one if the program has removed it there.
static JSValue find_function(uint32_t tool, uint32_t namespace, const char *name, uint32_t len) {
  JSValue object = namespace ? namespace_object(namespace) : js_dup(tools_object);
  if (JS_IsException(object)) return object;
  JSAtom atom = JS_NewAtomLen(ctx, name, len);
  if (atom == JS_ATOM_NULL) { JS_FreeValue(ctx, object); return JS_EXCEPTION; }
  int there = JS_GetOwnPropertyInternal(ctx, NULL, JS_VALUE_GET_OBJ(object), atom);
  JSValue function = there < 0 ? JS_EXCEPTION : there ? JS_GetProperty(ctx, object, atom) : new_tool_function(tool, name);
  JS_FreeAtom(ctx, atom); JS_FreeValue(ctx, object);
  return function;
}

// Reply: meaning u32, number u32, namespace u32, text.
static JSValue names_get(JSContext *c, JSValueConst object, JSAtom atom, JSValueConst receiver) {
  JSValue inherited = JS_GetProperty(ctx, ctx->class_proto[JS_CLASS_OBJECT], atom);
  if (!JS_IsUndefined(inherited)) return inherited;
  if (is_symbol(atom) || atom == JS_ATOM_then || atom == JS_ATOM_toJSON) return JS_UNDEFINED;
  const Place *place = JS_GetOpaque(object, names_class);
  int32_t answer = ask_meaning(place, atom);
  if (answer < 12) return JS_EXCEPTION;
  char *reply = js_malloc(ctx, answer + 1);
  if (!reply) return JS_EXCEPTION;
  host_read(reply);
  reply[answer] = 0;
  uint32_t header[3], len = answer - 12;
  memcpy(header, reply, 12);
  const char *text = reply + 12;
  JSValue value = JS_EXCEPTION;
  switch (header[0]) {
  case MEANS_FUNCTION: value = find_function(header[1], header[2], text, len); break;
  case MEANS_NAMESPACE: value = namespace_object(header[1]); break;
  case MEANS_PATH: value = len ? new_names(IN_PATH, 0, text, len) : js_dup(tools_object); break;
  case MEANS_GLOBAL: {
    JSValue name = JS_NewStringLen(ctx, text, len);
    value = JS_Call(ctx, hook_habit, JS_UNDEFINED, 1, (JSValueConst *)&name);
    JS_FreeValue(ctx, name);
    break;
  }
  default: {
    JSValue message = JS_NewStringLen(ctx, text, len);
    if (!JS_IsException(message)) throw_message(JS_ThrowReferenceError, message);
    JS_FreeValue(ctx, message);
  }
  }
  js_free(ctx, reply);
  return value;
}
static int names_has(JSContext *c, JSValueConst object, JSAtom atom) {
  if (!is_symbol(atom)) {
    uint32_t header[3];
    int32_t answer = ask_meaning(JS_GetOpaque(object, names_class), atom);
    if (answer < 12) return -1;
    char *reply = js_malloc(ctx, answer);
    if (!reply) return -1;
    host_read(reply);
    memcpy(header, reply, 12);
    js_free(ctx, reply);
    if (header[0] == MEANS_FUNCTION || header[0] == MEANS_NAMESPACE) return true;
  }
  return JS_HasProperty(ctx, ctx->class_proto[JS_CLASS_OBJECT], atom);
}
static void names_free(JSRuntime *r, JSValueConst object) { js_free_rt(r, JS_GetOpaque(object, names_class)); }
static const JSClassExoticMethods names_exotic = {.get_property = names_get, .has_property = names_has};
static const JSClassDef names_def = {"Tools", .finalizer = names_free, .exotic = (JSClassExoticMethods *)&names_exotic};

// An object whose prototype answers for every name that is no own property.
static JSValue new_names(uint32_t kind, uint32_t namespace, const char *text, uint32_t len) {
  if (len > NAME_BYTES_MAX) len = NAME_BYTES_MAX;
  JSValue proto = JS_NewObjectProtoClass(ctx, JS_NULL, names_class);
  if (JS_IsException(proto)) return proto;
  Place *place = js_malloc(ctx, sizeof(Place) + len);
  if (!place) { JS_FreeValue(ctx, proto); return JS_EXCEPTION; }
  *place = (Place){kind, namespace, len};
  memcpy(place->text, text, len);
  JS_SetOpaque(proto, place);
  JSValue names = JS_NewObjectProto(ctx, proto);
  JS_FreeValue(ctx, proto);
  return names;
}

// `import("module")`
static JSValue import_tools(JSContext *c, JSValueConst module) {
  JSValue names = JS_Call(ctx, hook_import, JS_UNDEFINED, 1, &module);
  if (JS_IsException(names)) return rejected_promise();
  JSValue promise = JS_NewSettledPromise(ctx, false, names);
  JS_FreeValue(ctx, names);
  return promise;
}

// native.module(name): an object with the tools that can be imported from a module.
static JSValue js_module(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv) {
  size_t len;
  const char *name = JS_ToCStringLen(ctx, &len, argv[0]);
  if (!name) return JS_EXCEPTION;
  JSValue module = new_names(IN_MODULE, 0, name, len);
  JS_FreeCString(ctx, name);
  return module;
}

static JSValue new_tool_function(uint32_t tool, const char *name) {
  return JS_NewCFunctionMagic(ctx, js_call_tool, name, 1, JS_CFUNC_generic_magic, tool);
}

static JSValue js_unknown(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv, int magic, JSValueConst *data) {
  return throw_message(JS_ThrowReferenceError, data[0]);
}

static JSValue namespaces; // by number: made when they are first read, since a program uses few of many

static JSValue namespace_object(uint32_t number) {
  JSAtom key = __JS_AtomFromUInt32(number);
  JSValue made = remembered(namespaces, key);
  if (!JS_IsUndefined(made)) return made;
  made = new_names(IN_NAMESPACE, number, "", 0);
  if (JS_IsException(made)) return made;
  if (!list_names(made, LIST_NAMESPACES + number - 1)) {
    if (!remember(namespaces, key, js_dup(made))) return made;
    drop_list(JS_VALUE_GET_OBJ(made));
  }
  JS_FreeValue(ctx, made);
  return JS_EXCEPTION;
}

// Whether a program finds something under a name that is in no list.
static bool is_global(JSAtom atom) {
  JSObject *global = JS_VALUE_GET_OBJ(ctx->global_obj);
  return find_own_property1(global, atom) || JS_HasProperty(ctx, JS_MKPTR(JS_TAG_OBJECT, global->shape->proto), atom);
}

static JSValue unknown_getter(const uint8_t *message, uint32_t len) {
  JSValue text = JS_NewStringLen(ctx, (const char *)message, len);
  JSValue getter = JS_NewCFunctionData(ctx, js_unknown, 0, 0, 1, (JSValueConst *)&text);
  JS_FreeValue(ctx, text);
  return getter;
}

static JSValue habit_of(JSAtom atom) {
  JSValue name = JS_AtomToString(ctx, atom);
  JSValue habit = JS_Call(ctx, hook_habit, JS_UNDEFINED, 1, (JSValueConst *)&name);
  JS_FreeValue(ctx, name);
  return habit;
}

static JSValue function_called(uint32_t tool, JSAtom atom) {
  const char *name = JS_AtomToCString(ctx, atom);
  JSValue function = name ? new_tool_function(tool, name) : JS_EXCEPTION;
  JS_FreeCString(ctx, name);
  return function;
}

// Defines globals for one program. Entries: kind u8, tool u32, name length u32, name, then for ENTRY_UNKNOWN message length
// u32 and message.
static int install(const uint8_t *at, const uint8_t *end) {
  const int flags = JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE | JS_PROP_NO_EXOTIC;
  JSValueConst global = ctx->global_obj;
  while (at < end) {
    uint8_t kind = *at;
    uint32_t tool, len, message_len;
    memcpy(&tool, at + 1, 4); memcpy(&len, at + 5, 4);
    const char *name = (const char *)at + 9;
    at += 9 + len;
    JSAtom atom = JS_NewAtomLen(ctx, name, len);
    if (atom == JS_ATOM_NULL) return -1;
    switch (kind) {
    case ENTRY_LISTED: define_name(ctx, JS_VALUE_GET_OBJ(global), atom); break;
    case ENTRY_UNKNOWN:
      memcpy(&message_len, at, 4);
      if (!is_global(atom))
        JS_DefinePropertyGetSet(ctx, global, atom, unknown_getter(at + 4, message_len), JS_UNDEFINED, JS_PROP_CONFIGURABLE | JS_PROP_NO_EXOTIC);
      at += 4 + message_len;
      break;
    case ENTRY_HABIT: JS_DefinePropertyValue(ctx, global, atom, habit_of(atom), flags); break;
    case ENTRY_PATH: JS_DefinePropertyValue(ctx, global, atom, tool ? js_dup(tools_object) : new_names(IN_PATH, 0, name, len), flags); break;
    default: JS_DefinePropertyValue(ctx, global, atom, function_called(tool, atom), flags); // ENTRY_OTHER_NAME
    }
    JS_FreeAtom(ctx, atom);
  }
  return JS_HasException(ctx) ? -1 : 0;
}
