// A name of ASCII characters, looked up where it stands instead of in a copy. It begins one byte before *pp, which moves
// behind it; JS_ATOM_NULL where it has escapes or other characters, or there is no memory for it.
static JSAtom plain_name(JSParseState *s, const uint8_t **pp) {
  const char *name = (const char *)*pp - 1;
  const uint8_t *end = *pp;
  while (*end < 0x80 && lre_js_is_ident_next(*end)) end++;
  if (*end >= 0x80 || *end == '\\') return JS_ATOM_NULL;
  size_t len = (const char *)end - name;
  JSAtom atom = __JS_FindAtom(s->ctx->rt, name, len, JS_ATOM_TYPE_STRING);
  if (!atom) atom = JS_NewAtomLen(s->ctx, name, len);
  if (atom) *pp = end;
  return atom;
}
