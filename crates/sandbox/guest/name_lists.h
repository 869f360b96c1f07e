// Objects whose functions are made when a program first uses them: the global object, `tools` and the namespaces.
//
// The host has a list of names for each of them. Such an object is an ordinary one, some of whose properties are missing. The
// engine asks here where it finds no property, and before it needs all names or their order; then the missing ones are defined,
// as if they had been there from the start. A name is defined once: what the program deletes or replaces stays so.

enum { LIST_GLOBALS, LIST_TOOLS, LIST_NAMESPACES }; // the namespace with number 1 has the list LIST_NAMESPACES, and so on
enum { LISTED_FUNCTION, LISTED_GLOBAL, LISTED_NAMESPACE };
enum { NAME_UNUSED, NAME_DEFINED, NAME_DELETED };

typedef struct {
  uint32_t number;
  JSValue used; // an object with a property for each name that was, or was to be, defined or deleted
} NameList;

static JSValue tool_functions; // by number: a function is the same under all its names, and is kept when they are deleted
static JSAtom built_ins_end;   // a property that programs cannot see, behind the built-in ones of the global object

static JSValue namespace_object(uint32_t number);
static JSValue new_tool_function(uint32_t tool, const char *name);

// NULL for an object that has all its properties.
static NameList *list_of(JSObject *object) {
  return object->is_exotic && object->class_id == JS_CLASS_OBJECT ? object->u.opaque : NULL;
}

static int list_names(JSValueConst object, uint32_t number) {
  NameList *list = js_malloc(ctx, sizeof(NameList));
  if (!list) return -1;
  *list = (NameList){number, JS_NewObjectProto(ctx, JS_NULL)};
  if (JS_IsException(list->used)) { js_free(ctx, list); return -1; }
  JS_VALUE_GET_OBJ(object)->u.opaque = list;
  JS_VALUE_GET_OBJ(object)->is_exotic = true;
  return 0;
}

// From then on the object is like any other.
static void drop_list(JSObject *object) {
  NameList *list = list_of(object);
  object->is_exotic = false;
  object->u.opaque = NULL;
  JS_FreeValue(ctx, list->used);
  js_free(ctx, list);
}

// Tables are objects that no program sees.
static JSValue remembered(JSValueConst table, JSAtom key) {
  JSProperty *found;
  return find_own_property(&found, JS_VALUE_GET_OBJ(table), key) ? js_dup(found->u.value) : JS_UNDEFINED;
}
static int remember(JSValueConst table, JSAtom key, JSValue value) {
  return JS_DefinePropertyValue(ctx, table, key, value, JS_PROP_C_W_E) < 0 ? -1 : 0;
}
static int use_of(const NameList *list, JSAtom atom) {
  JSValue use = remembered(list->used, atom);
  return JS_IsUndefined(use) ? NAME_UNUSED : JS_VALUE_GET_INT(use);
}

typedef struct {
  uint8_t kind;
  uint32_t number;
  JSAtom name, function_name;
} ListedName;

// Kind u8, number u32, length u32 and text of the name, then those of the name that the function was given; no text if it is
// the same. What follows is returned. The name of the property is `name`, unless that is JS_ATOM_NULL.
static const uint8_t *read_listed(ListedName *into, const uint8_t *at, JSAtom name) {
  uint32_t len, function_len;
  into->kind = *at;
  memcpy(&into->number, at + 1, 4); memcpy(&len, at + 5, 4);
  into->name = name == JS_ATOM_NULL ? JS_NewAtomLen(ctx, (const char *)at + 9, len) : JS_DupAtom(ctx, name);
  at += 9 + len;
  memcpy(&function_len, at, 4);
  into->function_name = function_len ? JS_NewAtomLen(ctx, (const char *)at + 4, function_len) : JS_DupAtom(ctx, into->name);
  return at + 4 + function_len;
}
static bool is_read(const ListedName *listed) { return listed->name != JS_ATOM_NULL && listed->function_name != JS_ATOM_NULL; } // else no memory
static void free_listed(ListedName *listed) { JS_FreeAtom(ctx, listed->name); JS_FreeAtom(ctx, listed->function_name); }

static JSValue listed_function(const ListedName *listed) {
  JSAtom key = __JS_AtomFromUInt32(listed->number);
  JSValue function = remembered(tool_functions, key);
  if (!JS_IsUndefined(function)) return function;
  const char *name = JS_AtomToCString(ctx, listed->function_name);
  if (!name) return JS_EXCEPTION;
  function = listed->kind == LISTED_GLOBAL
    ? JS_NewCFunctionMagic(ctx, js_call_global, name, 1, JS_CFUNC_generic_magic, listed->number)
    : new_tool_function(listed->number, name);
  JS_FreeCString(ctx, name);
  if (JS_IsException(function) || !remember(tool_functions, key, js_dup(function))) return function;
  JS_FreeValue(ctx, function);
  return JS_EXCEPTION;
}

static JSValue listed_value(const ListedName *listed) {
  return listed->kind == LISTED_NAMESPACE ? namespace_object(listed->number) : listed_function(listed);
}

static int flags_in(const NameList *list) {
  return JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE | (list->number == LIST_GLOBALS ? 0 : JS_PROP_ENUMERABLE);
}

// 1, or -1 with an exception.
static int define_listed(JSObject *object, const ListedName *listed) {
  if (!is_read(listed)) return -1;
  NameList *list = list_of(object);
  // There is a place for the remark before there is a property: where memory is short, there are both or none.
  if (remember(list->used, listed->name, JS_NewInt32(ctx, NAME_UNUSED))) return -1;
  JSValue value = listed_value(listed);
  if (JS_IsException(value)) return -1;
  if (JS_DefinePropertyValue(ctx, JS_MKPTR(JS_TAG_OBJECT, object), listed->name, value, flags_in(list) | JS_PROP_NO_EXOTIC) < 0) return -1;
  JSProperty *use;
  find_own_property(&use, JS_VALUE_GET_OBJ(list->used), listed->name);
  use->u.value = JS_NewInt32(ctx, NAME_DEFINED);
  return 1;
}

// The last name that was found in no list. The engine asks up to three times before it adds a property. A long one is not
// kept: it would take memory after the program has dropped it.
static NameList *absent_in;
static JSAtom absent_name = JS_ATOM_NULL;

// 1 if the name is in the list and was never used; `found` is to be freed. -1 with an exception.
static int find_listed(NameList *list, JSAtom atom, ListedName *found) {
  if ((absent_in == list && absent_name == atom) || is_symbol(atom) || use_of(list, atom)) return 0;
  size_t len;
  const char *name = JS_AtomToCStringLen(ctx, &len, atom);
  if (!name) return -1;
  int32_t answer = host_listed(list->number, name, len);
  JS_FreeCString(ctx, name);
  if (answer < 0 && len <= NAME_BYTES_MAX) {
    JS_FreeAtom(ctx, absent_name);
    absent_name = JS_DupAtom(ctx, atom);
    absent_in = list;
  }
  if (answer < 0) return 0;
  uint8_t *reply = js_malloc(ctx, answer);
  if (!reply) return -1;
  host_read(reply);
  read_listed(found, reply, atom);
  js_free(ctx, reply);
  return 1;
}

// Defines a property that is missing. 1 if it was, 0 if there is nothing to define, -1 with an exception.
static int define_name(JSContext *c, JSObject *object, JSAtom atom) {
  NameList *list = list_of(object);
  ListedName listed;
  int found = list ? find_listed(list, atom, &listed) : 0;
  if (found <= 0) return found;
  found = define_listed(object, &listed);
  free_listed(&listed);
  return found;
}

// Before a property is deleted: it is not defined again, and if the program adds it again, it comes behind the others.
static int forget_name(JSContext *c, JSObject *object, JSAtom atom) {
  NameList *list = list_of(object);
  if (!list) return 0;
  JSShapeProperty *own = find_own_property1(object, atom);
  if (own && (!(own->flags & JS_PROP_CONFIGURABLE) || !use_of(list, atom))) return 0;
  if (!own) {
    ListedName listed;
    int found = find_listed(list, atom, &listed);
    if (found <= 0) return found;
    free_listed(&listed);
  }
  // The deletion that follows then needs no memory, and does what is remembered here.
  if (js_shape_prepare_update(ctx, object, NULL)) return -1;
  return remember(list->used, atom, JS_NewInt32(ctx, NAME_DELETED));
}

// All names of a list, in the order of the properties, with the values of those that are missing.
typedef struct {
  ListedName *names;
  JSValue *values; // JS_UNDEFINED for a name that is not missing
  uint32_t count;
} AllListed;

static void free_all(AllListed *all) {
  while (all->count) {
    JS_FreeValue(ctx, all->values[--all->count]);
    free_listed(&all->names[all->count]);
  }
  js_free(ctx, all->names); js_free(ctx, all->values);
}

static int read_all(const NameList *list, AllListed *all) {
  int32_t len = host_ask(ASK_NAMES, &list->number, 4);
  uint8_t *reply = js_malloc(ctx, len);
  if (!reply) return -1;
  host_read(reply);
  uint32_t count;
  memcpy(&count, reply, 4);
  *all = (AllListed){js_malloc(ctx, count * sizeof(ListedName) + 1), js_malloc(ctx, count * sizeof(JSValue) + 1)};
  bool failed = !all->names || !all->values;
  for (const uint8_t *at = reply + 4; !failed && at < reply + len; all->count++) {
    ListedName *name = &all->names[all->count];
    at = read_listed(name, at, JS_ATOM_NULL);
    bool is_missing = is_read(name) && use_of(list, name->name) == NAME_UNUSED;
    all->values[all->count] = is_missing ? listed_value(name) : JS_UNDEFINED;
    failed = !is_read(name) || JS_IsException(all->values[all->count]);
  }
  js_free(ctx, reply);
  if (failed) free_all(all);
  return failed ? -1 : 0;
}

// The properties of an object in another order. There is room for all.
typedef struct {
  JSShape *shape;
  JSProperty *values;
  bool *is_placed; // by the place in the old order
} Arranged;

static void place(Arranged *into, JSAtom atom, int flags, JSProperty value) {
  into->values[into->shape->prop_count] = value;
  add_shape_property(ctx, &into->shape, NULL, atom, flags);
}
static void place_own(Arranged *into, JSObject *object, uint32_t i) {
  JSShapeProperty *own = &get_shape_prop(object->shape)[i];
  if (own->atom != JS_ATOM_NULL && !into->is_placed[i]) place(into, own->atom, own->flags, object->prop[i]);
  into->is_placed[i] = true;
}

// Defines what is missing, in the order in which all would be if they had been there from the start: behind what is built in,
// before what the program has added.
static int arrange(JSObject *object, AllListed *all) {
  NameList *list = list_of(object);
  uint32_t own_count = object->shape->prop_count, room = own_count + all->count + 1, hash_size = JS_PROP_INITIAL_HASH_SIZE;
  while (hash_size < room) hash_size *= 2;
  Arranged into = {NULL, js_malloc(ctx, room * sizeof(JSProperty)), js_mallocz(ctx, own_count + 1)};
  if (into.values && into.is_placed) into.shape = js_new_shape_nohash(ctx, object->shape->proto, hash_size, room);
  if (!into.shape) { js_free(ctx, into.values); js_free(ctx, into.is_placed); return -1; }
  JSShapeProperty *end = find_own_property1(object, built_ins_end);
  uint32_t built_ins = end ? end - get_shape_prop(object->shape) + 1 : 0;
  for (uint32_t i = 0; i < built_ins; i++) place_own(&into, object, i);
  const int flags = flags_in(list);
  for (uint32_t i = 0; i < all->count; i++) {
    ListedName *name = &all->names[i];
    int use = use_of(list, name->name);
    JSShapeProperty *own = use == NAME_DEFINED ? find_own_property1(object, name->name) : NULL;
    if (own) place_own(&into, object, own - get_shape_prop(object->shape));
    else if (use == NAME_UNUSED) place(&into, name->name, flags, (JSProperty){.u.value = js_dup(all->values[i])});
  }
  for (uint32_t i = 0; i < own_count; i++) place_own(&into, object, i);
  js_free_shape(ctx->rt, object->shape);
  js_free(ctx, object->prop); js_free(ctx, into.is_placed);
  object->shape = into.shape;
  object->prop = into.values;
  return 0;
}

// Defines all that is missing.
static int complete_names(JSContext *c, JSObject *object) {
  NameList *list = list_of(object);
  AllListed all;
  if (!list) return 0;
  if (read_all(list, &all)) return -1;
  int failed = arrange(object, &all);
  free_all(&all);
  if (failed) return -1;
  absent_in = NULL;
  drop_list(object);
  return 0;
}

static int get_listed(JSContext *c, JSPropertyDescriptor *into, JSValueConst object, JSAtom atom) {
  int defined = define_name(c, JS_VALUE_GET_OBJ(object), atom);
  return defined > 0 ? JS_GetOwnPropertyInternal(c, into, JS_VALUE_GET_OBJ(object), atom) : defined;
}
static int redefine_listed(JSContext *c, JSValueConst object, JSAtom atom, JSValueConst value, JSValueConst getter, JSValueConst setter, int flags) {
  if (define_name(c, JS_VALUE_GET_OBJ(object), atom) < 0) return -1;
  return JS_DefineProperty(c, object, atom, value, getter, setter, flags | JS_PROP_NO_EXOTIC);
}
// For objects of the class of all plain objects: the engine looks here only for those that are marked as exotic.
static const JSClassExoticMethods listed_exotic = {.get_own_property = get_listed, .define_own_property = redefine_listed};

// Boot: what is there now is built in.
static int boot_names(void) {
  rt->class_array[JS_CLASS_OBJECT].exotic = &listed_exotic;
  tool_functions = JS_NewObjectProto(ctx, JS_NULL);
  JSValue end = JS_NewSymbolFromAtom(ctx, JS_ATOM_brand, JS_ATOM_TYPE_PRIVATE);
  if (JS_IsException(tool_functions) || JS_IsException(end)) return -1;
  built_ins_end = js_symbol_to_atom(ctx, end);
  if (JS_DefinePropertyValue(ctx, ctx->global_obj, built_ins_end, JS_UNDEFINED, 0) < 0) return -1;
  return list_names(ctx->global_obj, LIST_GLOBALS) || list_names(tools_object, LIST_TOOLS) ? -1 : 0;
}

// The names of the built-in globals, each with a space behind it, for the build: those of tools replace them from the start.
const char *EXPORT(built_ins)(void) {
  DynBuf names;
  js_dbuf_init(ctx, &names);
  JSShape *shape = JS_VALUE_GET_OBJ(ctx->global_obj)->shape;
  for (int i = 0; i < shape->prop_count; i++) {
    JSAtom atom = get_shape_prop(shape)[i].atom;
    const char *name = atom == JS_ATOM_NULL || is_symbol(atom) ? NULL : JS_AtomToCString(ctx, atom);
    if (name) { dbuf_putstr(&names, name); dbuf_putc(&names, ' '); }
    JS_FreeCString(ctx, name);
  }
  dbuf_putc(&names, 0);
  return (const char *)names.buf;
}
