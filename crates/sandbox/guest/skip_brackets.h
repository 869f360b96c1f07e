// Looks for the token that follows a bracket and what is in it, without making tokens of the text on the way.
//
// The engine does that at every bracket that may begin the parameters of an arrow function or a destructuring pattern, and
// reads the whole of a program once for each bracket around it.

// What the engine finds, or SKIP_UNKNOWN where only its own lexer can tell.
#define SKIP_UNKNOWN (-2)

// Bytecode of a function that is compiled, before it has to be moved.
#define BYTECODE_ROOM 240

// What a slash is after a character.
enum Slash { DIVIDES, BEGINS_REGEXP, UNKNOWN_SLASH };

static bool is_one_of(const char *const *words, size_t count, const uint8_t *word, size_t len) {
  for (size_t i = 0; i < count; i++)
    if (strlen(words[i]) == len && !memcmp(words[i], word, len)) return true;
  return false;
}

static enum Slash slash_after(const uint8_t *last, const uint8_t *start) {
  static const char *const before_expressions[] = {"case", "delete", "do",    "else",   "extends", "in",
                                                   "new",  "return", "throw", "typeof", "void",    "instanceof"};
  // Names in some functions, and after the others a line may end.
  static const char *const ambiguous[] = {"await", "break", "continue", "debugger", "of", "yield"};
  // After a number that ends with a point it divides; after `++` too, and not after `+`.
  if (strchr("`+-.", *last)) return UNKNOWN_SLASH;
  if (!lre_js_is_ident_next(*last)) return strchr(")]}\"'", *last) ? DIVIDES : BEGINS_REGEXP;
  const uint8_t *word = last;
  while (word > start && lre_js_is_ident_next(word[-1])) word--;
  // The name of a property is no keyword.
  if (word > start + 1 && (word[-1] == '#' || (word[-1] == '.' && word[-2] != '.'))) return DIVIDES;
  size_t len = last + 1 - word;
  if (is_one_of(ambiguous, countof(ambiguous), word, len)) return UNKNOWN_SLASH;
  return is_one_of(before_expressions, countof(before_expressions), word, len) ? BEGINS_REGEXP : DIVIDES;
}

// The end of a text in quotation marks, after the first one; NULL if it has none.
static const uint8_t *after_quoted(const uint8_t *p, const uint8_t *end, uint8_t mark) {
  for (; p < end && *p != '\n' && *p != '\r'; p++) {
    if (*p == mark) return p + 1;
    if (*p == '\\' && ++p == end) break;
  }
  return NULL;
}

// The end of a regular expression, after its first slash; NULL if it has none.
static const uint8_t *after_regexp(const uint8_t *p, const uint8_t *end) {
  bool in_class = false;
  for (; p < end && *p != '\n' && *p != '\r' && *p < 0x80; p++) {
    if (*p == '/' && !in_class) return p + 1;
    if (*p == '[') in_class = true;
    if (*p == ']') in_class = false;
    if (*p == '\\' && ++p == end) break;
  }
  return NULL;
}

// What follows a template's text, after its first mark or a brace that ends an expression in it: the end of the template, or
// the beginning of an expression; NULL if there is neither.
static const uint8_t *after_template_text(const uint8_t *p, const uint8_t *end) {
  for (; p < end; p++) {
    if (*p == '`') return p + 1;
    if (*p == '$' && p[1] == '{') return p + 2;
    if (*p == '\\' && ++p == end) break;
  }
  return NULL;
}

// The token that begins here: only those that callers ask for are told apart.
static int token_after_bracket(const uint8_t *p, const uint8_t *end, bool no_line_terminator) {
  for (; p < end; p++) {
    if (*p == '\n') {
      if (no_line_terminator) return '\n';
    } else if (*p != ' ' && *p != '\t') {
      break;
    }
  }
  if (p == end) return TOK_EOF;
  // Comments, names that are not ASCII, and escapes.
  if (*p == '/' || *p >= 0x80 || *p == '\\' || *p < ' ' || (*p == '<' && p[1] == '!') || (*p == '-' && p[1] == '-'))
    return SKIP_UNKNOWN;
  if (*p == '=') return p[1] == '>' ? TOK_ARROW : p[1] == '=' ? TOK_EQ : '=';
  if (!lre_js_is_ident_first(*p)) return *p;
  const uint8_t *word = p;
  while (p < end && *p < 0x80 && lre_js_is_ident_next(*p)) p++;
  if (p < end && (*p >= 0x80 || *p == '\\')) return SKIP_UNKNOWN;
  if (p - word == 2 && word[0] == 'i' && word[1] == 'n') return TOK_IN;
  if (p - word == 2 && word[0] == 'o' && word[1] == 'f') return TOK_OF;
  return TOK_IDENT;
}

// Characters of names, numbers, operators and spaces: they mean nothing for where a bracket ends.
static const bool is_skipped_over[256] = {
  [' '] = 1, ['\t'] = 1, ['\n'] = 1, ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1, ['&'] = 1, ['*'] = 1, ['+'] = 1, [','] = 1,
  ['0' ... '9'] = 1, [':'] = 1, ['>'] = 1, ['?'] = 1, ['A' ... 'Z'] = 1, ['^'] = 1, ['_'] = 1, ['a' ... 'z'] = 1, ['|'] = 1,
  ['~'] = 1,
};

static int skip_brackets(JSParseState *s, int *bits, bool no_line_terminator) {
  uint8_t open[256];
  size_t level = 0;
  const uint8_t *start = s->token.ptr, *p = start, *end = s->buf_end, *last, *regexp_end = NULL;
  if (*p != s->token.val || (*p != '(' && *p != '[' && *p != '{')) return SKIP_UNKNOWN;
  for (;;) {
    while (is_skipped_over[*p]) p++;
    const uint8_t c = *p++;
    switch (c) {
    case '(':
    case '[':
    case '{':
      if (level == sizeof(open)) return SKIP_UNKNOWN;
      open[level++] = c;
      break;
    case ')':
    case ']':
    case '}':
      if (c == '}' && open[level - 1] == '`') {
        p = after_template_text(p, end);
        if (!p) return SKIP_UNKNOWN;
        if (p[-1] == '`') level--;
        break;
      }
      if (open[--level] != (c == ')' ? '(' : c == ']' ? '[' : '{')) return SKIP_UNKNOWN;
      if (level == 0) return token_after_bracket(p, end, no_line_terminator);
      break;
    case '"':
    case '\'':
      p = after_quoted(p, end, c);
      if (!p) return SKIP_UNKNOWN;
      break;
    case '`':
      p = after_template_text(p, end);
      if (!p) return SKIP_UNKNOWN;
      if (p[-1] == '{') {
        if (level == sizeof(open)) return SKIP_UNKNOWN;
        open[level++] = '`';
      }
      break;
    case '/':
      last = p - 2;
      while (*last == ' ' || *last == '\t' || *last == '\n') last--;
      // A comment.
      if (*p == '/' || *p == '*') return SKIP_UNKNOWN;
      if (last == regexp_end) break;
      switch (slash_after(last, start)) {
      case DIVIDES:
        break;
      case BEGINS_REGEXP:
        p = after_regexp(p, end);
        if (!p) return SKIP_UNKNOWN;
        regexp_end = p - 1;
        break;
      case UNKNOWN_SLASH:
        return SKIP_UNKNOWN;
      }
      break;
    case ';':
      if (level == 1) *bits |= SKIP_HAS_SEMI;
      break;
    case '.':
      if (level == 1 && p[0] == '.' && p[1] == '.') *bits |= SKIP_HAS_ELLIPSIS;
      break;
    case '=':
      if (*p == '=' || *p == '>') {
        while (*p == '=' || *p == '>') p++;
      } else if (!strchr("<>!+-*%&|^?/", p[-2])) {
        *bits |= SKIP_HAS_ASSIGNMENT;
      }
      break;
    // Comments of HTML: `<!--` and `-->`.
    case '<':
      if (*p == '!') return SKIP_UNKNOWN;
      break;
    case '-':
      if (*p == '-' && p[1] == '>') return SKIP_UNKNOWN;
      break;
    // Also the zero at the end of the text.
    default:
      return SKIP_UNKNOWN;
    }
  }
}
