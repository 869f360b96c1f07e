// Elements that are added at the end of an array, as `map`, `split` and literals do.

static inline bool is_next_element(JSValueConst array, JSValueConst index, int flags) {
  if (JS_VALUE_GET_TAG(array) != JS_TAG_OBJECT || JS_VALUE_GET_TAG(index) != JS_TAG_INT) return false;
  JSObject *o = JS_VALUE_GET_OBJ(array);
  return o->class_id == JS_CLASS_ARRAY && o->fast_array && o->extensible && (uint32_t)JS_VALUE_GET_INT(index) == o->u.array.count
    && (flags & ~(JS_PROP_THROW | JS_PROP_THROW_STRICT)) == JS_PROP_C_W_E;
}
