// Namespaces, paths, modules and `tools`: objects with names of tools. The host says what the names mean.

static JSClassID names_class;

// What an object with names stands for.
typedef struct {
  uint32_t kind;      // IN_TOOLS, …
  uint32_t namespace; // its number, for IN_NAMESPACE
  uint32_t len;
  char text[];        // `a.b` for IN_PATH, the module for IN_MODULE
} Place;

static JSValue namespace_object(uint32_t number);
static JSValue new_names(uint32_t kind, uint32_t namespace, const char *text, uint32_t len);

#define NAME_BYTES_MAX 512

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

static JSValue new_tool_function(uint32_t tool, const char *name);

// The function with this name in `tools` or in a namespace; a new one if the program has removed it there.
static JSValue find_function(uint32_t tool, uint32_t namespace, const char *name, uint32_t len) {
  JSValue object = namespace ? namespace_object(namespace) : js_dup(tools_object);
  if (JS_IsException(object)) return object;
  JSAtom atom = JS_NewAtomLen(ctx, name, len);
  JSProperty *there;
  JSValue function = find_own_property(&there, JS_VALUE_GET_OBJ(object), atom) ? JS_GetProperty(ctx, object, atom) : new_tool_function(tool, name);
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

// An object whose own properties are functions and whose prototype answers for every other name.
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

// Made when they are first read: a program uses few of many.
static JSValue *namespaces;
static uint32_t namespace_count;

static int add_namespace(JSValueConst global, JSAtom atom) {
  JSValue *grown = js_realloc(ctx, namespaces, (namespace_count + 1) * sizeof(JSValue));
  if (!grown) return -1;
  namespaces = grown;
  namespaces[namespace_count++] = JS_UNDEFINED;
  const int flags = JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE;
  JSValueConst objects[2] = {global, tools_object};
  for (int i = 0; i < 2; i++) {
    int own_flags = i ? flags | JS_PROP_ENUMERABLE : flags;
    JSProperty *there;
    if (find_own_property(&there, JS_VALUE_GET_OBJ(objects[i]), atom))
      JS_DefinePropertyValue(ctx, objects[i], atom, namespace_object(namespace_count), own_flags);
    else
      JS_DefineAutoInitProperty(ctx, objects[i], atom, JS_AUTOINIT_ID_MODULE_NS, (void *)(uintptr_t)namespace_count, own_flags);
  }
  return 0;
}

// Entries: kind u8, tool u32, name length u32, name, then for ENTRY_UNKNOWN message length u32 and message.
// Functions go into the object, and outside of namespaces into `tools` too.
static int install(JSValueConst target, bool is_namespace, const uint8_t *at, const uint8_t *end) {
  JSValue function = JS_UNDEFINED;
  const int flags = JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE, listed = flags | JS_PROP_ENUMERABLE;
  while (at < end) {
    uint8_t kind = *at;
    uint32_t tool, len;
    memcpy(&tool, at + 1, 4); memcpy(&len, at + 5, 4);
    const char *name = (const char *)at + 9;
    at += 9 + len;
    JSAtom atom = JS_NewAtomLen(ctx, name, len);
    if (kind == ENTRY_NAMESPACE) {
      add_namespace(target, atom);
    } else if (kind == ENTRY_UNKNOWN) {
      uint32_t message_len;
      memcpy(&message_len, at, 4);
      JSValue message = JS_NewStringLen(ctx, (const char *)at + 4, message_len);
      at += 4 + message_len;
      if (JS_HasProperty(ctx, target, atom) == 0) {
        JSValue getter = JS_NewCFunctionData(ctx, js_unknown, 0, 0, 1, (JSValueConst *)&message);
        JS_DefinePropertyGetSet(ctx, target, atom, getter, JS_UNDEFINED, JS_PROP_CONFIGURABLE);
      }
      JS_FreeValue(ctx, message);
    } else if (kind == ENTRY_GLOBAL) {
      const char *text = JS_AtomToCString(ctx, atom);
      JSValue callable = JS_NewCFunctionMagic(ctx, js_call_global, text ? text : "", 1, JS_CFUNC_generic_magic, tool);
      if (text) JS_FreeCString(ctx, text);
      JS_DefinePropertyValue(ctx, target, atom, callable, flags);
    } else if (kind == ENTRY_HABIT) {
      JSValue key = JS_AtomToString(ctx, atom);
      JSValue habit = JS_Call(ctx, hook_habit, JS_UNDEFINED, 1, (JSValueConst *)&key);
      JS_FreeValue(ctx, key);
      JS_DefinePropertyValue(ctx, target, atom, habit, flags);
    } else if (kind == ENTRY_PATH) {
      JS_DefinePropertyValue(ctx, target, atom, tool ? js_dup(tools_object) : new_names(IN_PATH, 0, name, len), flags);
    } else if (kind == ENTRY_OTHER_NAME) {
      const char *text = JS_AtomToCString(ctx, atom);
      JS_DefinePropertyValue(ctx, target, atom, new_tool_function(tool, text ? text : ""), flags);
      if (text) JS_FreeCString(ctx, text);
    } else {
      if (kind == ENTRY_FUNCTION) {
        JS_FreeValue(ctx, function);
        const char *text = JS_AtomToCString(ctx, atom);
        function = new_tool_function(tool, text ? text : "");
        if (text) JS_FreeCString(ctx, text);
      }
      // What is no identifier is reached through an object, and cannot be a global.
      if (is_namespace) JS_DefinePropertyValue(ctx, target, atom, js_dup(function), listed);
      else if (kind != ENTRY_EXACT) JS_DefinePropertyValue(ctx, target, atom, js_dup(function), flags);
      // Tools of servers are reached as tools.server.name; only the client's own stand in `tools` itself.
      if (!is_namespace) JS_DefinePropertyValue(ctx, tools_object, atom, js_dup(function), listed);
    }
    JS_FreeAtom(ctx, atom);
  }
  JS_FreeValue(ctx, function);
  return JS_HasException(ctx) ? -1 : 0;
}

static JSValue namespace_object(uint32_t number) {
  JSValue made = namespaces[number - 1];
  if (!JS_IsUndefined(made)) return js_dup(made);
  int32_t len = host_ask(ASK_MEMBERS, &number, 4);
  uint8_t *members = js_malloc(ctx, len > 0 ? len : 1);
  if (!members) return JS_EXCEPTION;
  if (len > 0) host_read(members);
  made = new_names(IN_NAMESPACE, number, "", 0);
  if (!JS_IsException(made) && install(made, true, members, members + (len > 0 ? len : 0))) {
    JS_FreeValue(ctx, made);
    made = JS_EXCEPTION;
  }
  js_free(ctx, members);
  if (!JS_IsException(made)) namespaces[number - 1] = js_dup(made);
  return made;
}

static JSValue namespace_autoinit(JSContext *c, JSObject *object, JSAtom atom, void *number) {
  return namespace_object((uint32_t)(uintptr_t)number);
}
