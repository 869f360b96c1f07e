// Upper and lower case of texts in ASCII, without a look into the tables of Unicode for every character.

// JS_UNINITIALIZED if the text has other characters.
static JSValue ascii_case(JSContext *ctx, JSString *text, int to_lower) {
  if (text->is_wide_char) return JS_UNINITIALIZED;
  const uint8_t *from = str8(text);
  int len = text->len;
  uint8_t any = 0;
  for (int i = 0; i < len; i++) any |= from[i];
  if (any >= 0x80) return JS_UNINITIALIZED;
  JSString *converted = js_alloc_string(ctx, len, 0);
  if (!converted) return JS_EXCEPTION;
  uint8_t *to = str8(converted), first = to_lower ? 'A' : 'a';
  // The two cases of a letter differ by this bit.
  for (int i = 0; i < len; i++) to[i] = from[i] ^ ((uint8_t)(from[i] - first) < 26 ? 0x20 : 0);
  to[len] = '\0';
  return JS_MKPTR(JS_TAG_STRING, converted);
}
