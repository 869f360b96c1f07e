// The world that programs find: everything that generated code reaches for and the engine lacks.
//
// Evaluated once, when the image is made, and called with the natives of guest.c, which no program ever sees.
// Returns the hooks that guest.c calls. What the hooks need is captured here, before any program runs.
((native) => {
  'use strict';
  const { ask, module, store, tools, compare, emit, show, now, started, setTimer, clearTimer, fillRandom, encodeUtf8, decodeUtf8 } = native;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const { parse, stringify } = JSON;
  const { isSafeInteger } = Number;
  const { defineProperty, keys, getOwnPropertyDescriptor, hasOwn } = Object;
  const { isArray } = Array, isNativeError = Error.isError, DOMExceptionOf = DOMException;
  // The engine does not count a DOMException among its errors.
  const isError = (value) => isNativeError(value) || safely(() => value instanceof DOMExceptionOf, false);
  const mapForEach = uncurry(Map.prototype.forEach), setForEach = uncurry(Set.prototype.forEach);
  const toISOString = uncurry(Date.prototype.toISOString), getTime = uncurry(Date.prototype.getTime);
  const matches = uncurry(RegExp.prototype.exec), regExpText = uncurry(RegExp.prototype.toString);
  const slice = uncurry(String.prototype.slice), startsWith = uncurry(String.prototype.startsWith);
  const tag = uncurry(Object.prototype.toString);
  const objectToString = Object.prototype.toString;
  const BigIntOf = BigInt, StringOf = String, NumberOf = Number, BytesOf = Uint8Array, ErrorOf = Error, AggregateErrorOf = AggregateError;
  const typedArray = Object.getPrototypeOf(Uint8Array.prototype);
  const byteLength = uncurry(getOwnPropertyDescriptor(typedArray, 'byteLength').get);
  const bufferOf = uncurry(getOwnPropertyDescriptor(typedArray, 'buffer').get);
  const lengthOf = uncurry(getOwnPropertyDescriptor(typedArray, 'length').get);
  const byteOffset = uncurry(getOwnPropertyDescriptor(typedArray, 'byteOffset').get);
  const kindOf = uncurry(getOwnPropertyDescriptor(typedArray, Symbol.toStringTag).get);
  const utf8Text = (text) => encodeUtf8(text.toWellFormed());

  // Without a prototype, descriptors take nothing from an Object.prototype that the program has changed.
  const put = (target, key, value, enumerable = true) => defineProperty(target, key, { __proto__: null, value, writable: true, configurable: true, enumerable });
  const hidden = (target, values) => {
    const names = keys(values);
    for (let i = 0; i < names.length; i++) put(target, names[i], values[names[i]], false);
  };
  const named = (name, constructor) => {
    defineProperty(constructor.prototype, Symbol.toStringTag, { value: name, configurable: true });
    hidden(globalThis, { [name]: constructor });
    return constructor;
  };

  // ---- nothing shared, nothing outside ----
  for (const name of ['SharedArrayBuffer', 'Atomics', 'WebAssembly']) delete globalThis[name];

  // ---- errors of tools ----
  class ToolError extends Error {
    constructor(message, tool, data) {
      super(message);
      hidden(this, { name: 'ToolError' });
      put(this, 'tool', tool);
      put(this, 'data', data);
    }
  }
  named('ToolError', ToolError);

  // ---- console ----
  const levels = { debug: 0, log: 1, info: 2, warn: 3, error: 4 };
  let indent = '';
  const text = (value) => {
    if (typeof value === 'string') return value;
    if (typeof value === 'bigint') return `${value}n`;
    if (typeof value === 'symbol') return StringOf(value);
    if (typeof value === 'function') return plain(value, 'Function', 2);
    if (isError(value)) return summary(value);
    return show(value);
  };
  const format = (args) => {
    if (typeof args[0] !== 'string' || args.length < 2 || !args[0].includes('%')) return args.map(text).join(' ');
    let next = 1;
    const first = args[0].replace(/%[sdifjoOc%]/g, (mark) => {
      if (mark === '%%') return '%';
      if (next >= args.length) return mark;
      const value = args[next++];
      switch (mark) {
        case '%c': return '';
        case '%d': case '%f': return `${Number(value)}`;
        case '%i': return `${parseInt(value, 10)}`;
        case '%s': return typeof value === 'object' ? text(value) : `${String(value)}`;
        default: return typeof value === 'string' ? stringify(value) : text(value);
      }
    });
    return [first, ...args.slice(next).map(text)].join(' ');
  };
  const write = (level, line) => emit(levels[level], indent ? indent + line.replaceAll('\n', `\n${indent}`) : line);
  const counts = new Map(), clocks = new Map();
  const console = {};
  for (const level of keys(levels)) hidden(console, { [level]: { [level]: (...args) => write(level, format(args)) }[level] });
  const elapsed = (label) => (clocks.has(label) ? `${label}: ${now() - clocks.get(label)}ms` : undefined);
  hidden(console, {
    assert: (condition, ...args) => { if (!condition) write('error', ['Assertion failed', ...(args.length ? [format(args)] : [])].join(': ')); },
    clear() {},
    count: (label = 'default') => { counts.set(label, (counts.get(label) ?? 0) + 1); write('log', `${label}: ${counts.get(label)}`); },
    countReset: (label = 'default') => { counts.delete(label); },
    dir: (value) => write('log', text(value)),
    dirxml: (...args) => write('log', format(args)),
    group: (...args) => { if (args.length) write('log', format(args)); if (indent.length < 64) indent += '  '; },
    groupCollapsed: (...args) => console.group(...args),
    groupEnd: () => { indent = indent.slice(2); },
    table: (value) => write('log', table(value)),
    time: (label = 'default') => { clocks.set(label, now()); },
    timeEnd: (label = 'default') => { const line = elapsed(label); clocks.delete(label); if (line) write('log', line); },
    timeLog: (label = 'default', ...args) => { const line = elapsed(label); if (line) write('log', [line, ...args.map(text)].join(' ')); },
    trace: (...args) => write('log', `Trace: ${format(args)}`),
  });
  const table = (value) => {
    if (typeof value !== 'object' || value === null) return text(value);
    const rows = Object.entries(value);
    const columns = [...new Set(rows.flatMap(([, row]) => (typeof row === 'object' && row !== null ? Object.keys(row) : ['value'])))];
    const cells = rows.map(([index, row]) => [index, ...columns.map((column) => {
      const cell = typeof row === 'object' && row !== null ? row[column] : column === 'value' ? row : undefined;
      return cell === undefined ? '' : text(cell);
    })]);
    const all = [['', ...columns], ...cells];
    const widths = all[0].map((_, i) => Math.max(...all.map((line) => line[i].length)));
    return all.map((line) => line.map((cell, i) => cell.padEnd(widths[i])).join(' | ').trimEnd()).join('\n');
  };
  defineProperty(console, Symbol.toStringTag, { value: 'console', configurable: true });
  hidden(globalThis, { console });

  // ---- time ----
  const schedule = (name, repeat) => ({
    [name](callback, delay = 0, ...args) {
      if (typeof callback !== 'function') throw new TypeError(`${name} needs a function`);
      return setTimer(callback, Number(delay), repeat, args);
    },
  })[name];
  hidden(globalThis, {
    setTimeout: schedule('setTimeout', false),
    setInterval: schedule('setInterval', true),
    clearTimeout: function clearTimeout(id) { clearTimer(id); },
    clearInterval: function clearInterval(id) { clearTimer(id); },
    performance: Object.create({}, {
      now: { value: () => now() - started() },
      timeOrigin: { get: () => started() },
      mark: { value: () => undefined },
      measure: { value: () => undefined },
      [Symbol.toStringTag]: { value: 'Performance' },
    }),
  });

  // ---- entropy ----
  const crypto = {};
  hidden(crypto, {
    getRandomValues(array) {
      const kind = kindOf(array);
      if (kind === undefined || startsWith(kind, 'Float')) throw new TypeError('crypto.getRandomValues needs an integer typed array');
      if (byteLength(array) > 65536) throw new RangeError('crypto.getRandomValues fills at most 65,536 bytes');
      fillRandom(new BytesOf(bufferOf(array), byteOffset(array), byteLength(array)));
      return array;
    },
    randomUUID() {
      const bytes = new BytesOf(16);
      fillRandom(bytes);
      bytes[6] = (bytes[6] & 15) | 64;
      bytes[8] = (bytes[8] & 63) | 128;
      let out = '';
      for (let i = 0; i < 16; i++) out += (i === 4 || i === 6 || i === 8 || i === 10 ? '-' : '') + slice((bytes[i] + 256).toString(16), 1);
      return out;
    },
  });
  defineProperty(crypto, Symbol.toStringTag, { value: 'Crypto', configurable: true });
  hidden(globalThis, { crypto });

  // ---- text ----
  const bytesOf = (input) => {
    if (input === undefined) return new BytesOf(0);
    if (input instanceof ArrayBuffer) return new BytesOf(input);
    if (ArrayBuffer.isView(input)) return new BytesOf(input.buffer, input.byteOffset, input.byteLength);
    throw new TypeError('TextDecoder.decode needs an ArrayBuffer or a view of one');
  };
  named('TextEncoder', class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(input = '') { return utf8Text(`${input}`); }
    encodeInto(input, target) {
      let read = 0, written = 0;
      for (const character of `${input}`) {
        const bytes = utf8Text(character);
        if (written + bytes.length > target.length) break;
        target.set(bytes, written);
        written += bytes.length;
        read += character.length;
      }
      return { read, written };
    }
  });
  const encodings = { 'utf-8': 'utf-8', utf8: 'utf-8', 'unicode-1-1-utf-8': 'utf-8', 'utf-16': 'utf-16le', 'utf-16le': 'utf-16le' };
  named('TextDecoder', class TextDecoder {
    #encoding; #fatal; #ignoreBOM;
    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      this.#encoding = encodings[`${label}`.trim().toLowerCase()];
      if (!this.#encoding) throw new RangeError(`TextDecoder: the encoding "${label}" is not available here; use utf-8 or utf-16le`);
      this.#fatal = Boolean(fatal);
      this.#ignoreBOM = Boolean(ignoreBOM);
    }
    get encoding() { return this.#encoding; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#ignoreBOM; }
    decode(input, { stream = false } = {}) {
      if (stream) throw new TypeError('TextDecoder: streaming is not available here; decode the whole input at once');
      const bytes = bytesOf(input);
      let out;
      if (this.#encoding === 'utf-8') out = decodeUtf8(bytes, this.#fatal);
      else {
        const units = [];
        for (let i = 0; i + 1 < bytes.length; i += 2) units.push(String.fromCharCode(bytes[i] | (bytes[i + 1] << 8)));
        out = units.join('');
        const whole = bytes.length % 2 === 0 && out.isWellFormed();
        if (this.#fatal && !whole) out = undefined;
        else out = out.toWellFormed() + (bytes.length % 2 ? '\ufffd' : '');
      }
      if (out === undefined) throw new TypeError(`TextDecoder: the input is not valid ${this.#encoding}`);
      return !this.#ignoreBOM && out.startsWith('\ufeff') ? out.slice(1) : out;
    }
  });

  // ---- URLs: parsed by the host, as the WHATWG URL standard says ----
  const URL_PARSE = 0, URL_SET = 1, ZONE_OFFSET = 2, ZONE_NAME = 3;
  const question = (...parts) => stringify(parts.map((part) => (part === undefined ? null : `${part}`.toWellFormed())));
  const formEncode = (part) => encodeURIComponent(part.toWellFormed()).replace(/[!'()~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`).replaceAll('%20', '+');
  const formDecode = (part) => {
    const raw = utf8Text(part.replaceAll('+', ' '));
    const bytes = [];
    for (let i = 0; i < raw.length; i++) {
      const code = raw[i] === 37 ? parseInt(String.fromCharCode(raw[i + 1] ?? 0, raw[i + 2] ?? 0), 16) : NaN;
      const isHex = (c) => (c >= 48 && c <= 57) || (c >= 65 && c <= 70) || (c >= 97 && c <= 102);
      if (raw[i] === 37 && isHex(raw[i + 1]) && isHex(raw[i + 2])) { bytes.push(code); i += 2; } else bytes.push(raw[i]);
    }
    return decodeUtf8(new BytesOf(bytes), false);
  };
  const formParse = (query) => query.split('&').filter((pair) => pair !== '').map((pair) => {
    const at = pair.indexOf('=');
    return at < 0 ? [formDecode(pair), ''] : [formDecode(pair.slice(0, at)), formDecode(pair.slice(at + 1))];
  });
  let attach, refresh;
  class URLSearchParams {
    #pairs = []; #url;
    static {
      attach = (params, url) => { params.#url = url; return params; };
      refresh = (params, query) => { params.#pairs = formParse(query); };
    }
    constructor(init = '') {
      if (typeof init === 'object' && init !== null) {
        if (typeof init[Symbol.iterator] === 'function') {
          for (const pair of init) {
            const [name, value, ...more] = pair;
            if (value === undefined || more.length) throw new TypeError('URLSearchParams: each pair must have exactly a name and a value');
            this.#pairs.push([`${name}`, `${value}`]);
          }
        } else for (const name of Object.keys(init)) this.#pairs.push([name, `${init[name]}`]);
      } else {
        const query = `${init}`;
        this.#pairs = formParse(query.startsWith('?') ? query.slice(1) : query);
      }
    }
    #changed() { if (this.#url) this.#url(this.toString()); }
    get size() { return this.#pairs.length; }
    append(name, value) { this.#pairs.push([`${name}`, `${value}`]); this.#changed(); }
    delete(name, value) { this.#pairs = this.#pairs.filter(([n, v]) => n !== `${name}` || (value !== undefined && v !== `${value}`)); this.#changed(); }
    get(name) { return this.#pairs.find(([n]) => n === `${name}`)?.[1] ?? null; }
    getAll(name) { return this.#pairs.filter(([n]) => n === `${name}`).map(([, v]) => v); }
    has(name, value) { return this.#pairs.some(([n, v]) => n === `${name}` && (value === undefined || v === `${value}`)); }
    set(name, value) {
      const at = this.#pairs.findIndex(([n]) => n === `${name}`);
      if (at < 0) this.#pairs.push([`${name}`, `${value}`]);
      else this.#pairs = this.#pairs.filter(([n], i) => n !== `${name}` || i === at).map((pair) => (pair[0] === `${name}` ? [pair[0], `${value}`] : pair));
      this.#changed();
    }
    sort() { this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)); this.#changed(); }
    forEach(callback, self) { for (const [name, value] of this) callback.call(self, value, name, this); }
    *entries() { for (let i = 0; i < this.#pairs.length; i++) yield [...this.#pairs[i]]; }
    *keys() { for (const [name] of this.entries()) yield name; }
    *values() { for (const [, value] of this.entries()) yield value; }
    toString() { return this.#pairs.map(([name, value]) => `${formEncode(name)}=${formEncode(value)}`).join('&'); }
    toJSON() { return this.toString(); }
  }
  hidden(URLSearchParams.prototype, { [Symbol.iterator]: URLSearchParams.prototype.entries });
  defineProperty(URLSearchParams.prototype, Symbol.iterator, { value: URLSearchParams.prototype.entries, writable: true, configurable: true });
  named('URLSearchParams', URLSearchParams);
  class URL {
    #parts; #params;
    constructor(url, base) {
      const answer = ask(URL_PARSE, question(url, base));
      if (answer === undefined) throw new TypeError(`Invalid URL: ${slice(`${url}`, 0, 200)}`);
      this.#parts = parse(answer);
    }
    static canParse(url, base) { return ask(URL_PARSE, question(url, base)) !== undefined; }
    static parse(url, base) { return URL.canParse(url, base) ? new URL(url, base) : null; }
    #set(part, value) {
      const answer = ask(URL_SET, question(this.#parts.href, part, value));
      if (answer === undefined) { if (part === 'href') throw new TypeError(`Invalid URL: ${value}`); return; }
      this.#parts = parse(answer);
      if (this.#params && (part === 'search' || part === 'href')) refresh(this.#params, this.#parts.search.slice(1));
    }
    get searchParams() {
      this.#params ??= attach(new URLSearchParams(this.#parts.search), (query) => {
        const answer = ask(URL_SET, question(this.#parts.href, 'search', query));
        if (answer !== undefined) this.#parts = parse(answer);
      });
      return this.#params;
    }
    get origin() { return this.#parts.origin; }
    toString() { return this.#parts.href; }
    toJSON() { return this.#parts.href; }
    static {
      for (const part of ['href', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash']) {
        defineProperty(URL.prototype, part, {
          get() { return this.#parts[part]; },
          set(value) { this.#set(part, value); },
          configurable: true, enumerable: true,
        });
      }
    }
  }
  named('URL', URL);

  // ---- events and abort ----
  class Event {
    #type; #prevented = false;
    constructor(type, init = {}) { this.#type = `${type}`; this.cancelable = Boolean(init.cancelable); this.target = null; }
    get type() { return this.#type; }
    get defaultPrevented() { return this.#prevented; }
    preventDefault() { if (this.cancelable) this.#prevented = true; }
    stopImmediatePropagation() { this.stopped = true; }
    stopPropagation() {}
  }
  named('Event', Event);
  class EventTarget {
    #listeners = [];
    addEventListener(type, listener, options = {}) {
      if (!listener || this.#listeners.some((l) => l.type === `${type}` && l.listener === listener)) return;
      this.#listeners.push({ type: `${type}`, listener, once: Boolean(options?.once) });
    }
    removeEventListener(type, listener) { this.#listeners = this.#listeners.filter((l) => l.type !== `${type}` || l.listener !== listener); }
    dispatchEvent(event) {
      event.target = this;
      const handler = this[`on${event.type}`];
      if (typeof handler === 'function') handler.call(this, event);
      for (const entry of [...this.#listeners]) {
        if (entry.type !== event.type || !this.#listeners.includes(entry)) continue;
        if (entry.once) this.removeEventListener(entry.type, entry.listener);
        if (typeof entry.listener === 'function') entry.listener.call(this, event);
        else entry.listener.handleEvent(event);
        if (event.stopped) break;
      }
      return !event.defaultPrevented;
    }
  }
  named('EventTarget', EventTarget);
  let newSignal, abortSignal;
  class AbortSignal extends EventTarget {
    #aborted = false; #reason; onabort = null;
    static #making = false;
    static {
      newSignal = () => { AbortSignal.#making = true; return new AbortSignal(); };
      abortSignal = (signal, reason = new DOMException('This operation was aborted', 'AbortError')) => {
        if (signal.#aborted) return;
        signal.#aborted = true;
        signal.#reason = reason;
        signal.dispatchEvent(new Event('abort'));
      };
    }
    constructor() {
      super();
      if (!AbortSignal.#making) throw new TypeError('Illegal constructor');
      AbortSignal.#making = false;
    }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }
    static abort(reason) { const signal = newSignal(); abortSignal(signal, reason); return signal; }
    static timeout(ms) {
      const signal = newSignal();
      setTimer(() => abortSignal(signal, new DOMException('The operation was aborted due to timeout', 'TimeoutError')), ms, false, []);
      return signal;
    }
    static any(signals) {
      const joint = newSignal();
      for (const signal of signals) {
        if (signal.aborted) { abortSignal(joint, signal.reason); break; }
        signal.addEventListener('abort', () => abortSignal(joint, signal.reason), { once: true });
      }
      return joint;
    }
  }
  named('AbortSignal', AbortSignal);
  named('AbortController', class AbortController {
    #signal = newSignal();
    get signal() { return this.#signal; }
    abort(reason) { abortSignal(this.#signal, reason); }
  });

  // ---- structuredClone ----
  const errorKinds = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
  const clone = (value, seen) => {
    if (typeof value === 'function' || typeof value === 'symbol') throw new DOMException(`${text(value)} could not be cloned`, 'DataCloneError');
    if (typeof value !== 'object' || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => { seen.set(value, copy); return copy; };
    const kind = tag(value).slice(8, -1);
    if (Array.isArray(value)) {
      const copy = keep(new Array(value.length));
      for (const key of keys(value)) copy[key] = clone(value[key], seen);
      return copy;
    }
    if (value instanceof Date) return keep(new Date(getTime(value)));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof Map) { const copy = keep(new Map()); mapForEach(value, (v, k) => copy.set(clone(k, seen), clone(v, seen))); return copy; }
    if (value instanceof Set) { const copy = keep(new Set()); setForEach(value, (v) => copy.add(clone(v, seen))); return copy; }
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (ArrayBuffer.isView(value)) {
      const buffer = clone(value.buffer, seen);
      return keep(new value.constructor(buffer, value.byteOffset, value instanceof DataView ? value.byteLength : value.length));
    }
    if (isError(value)) {
      const copy = keep(Object.create((Object.hasOwn(errorKinds, value.name) ? errorKinds[value.name] : Error).prototype));
      const fresh = new ErrorOf(value.message);
      Object.setPrototypeOf(fresh, Object.getPrototypeOf(copy));
      seen.set(value, fresh);
      if ('cause' in value) hidden(fresh, { cause: clone(value.cause, seen) });
      hidden(fresh, { stack: value.stack });
      return fresh;
    }
    if (value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof BigInt) return keep(Object(value.valueOf()));
    if (kind === 'Promise' || kind === 'WeakMap' || kind === 'WeakSet' || kind === 'WeakRef' || kind.endsWith('Generator')) {
      throw new DOMException(`a ${kind} could not be cloned`, 'DataCloneError');
    }
    const copy = keep({});
    for (const key of keys(value)) copy[key] = clone(value[key], seen);
    return copy;
  };
  hidden(globalThis, { structuredClone: function structuredClone(value) { return clone(value, new Map()); } });

  // Answers are parsed already. As text an object would be "[object Object]", and a list its items.
  const { parse: parseText } = JSON;
  hidden(JSON, { parse: function parse(text, reviver) {
    if (isArray(text) || (typeof text === 'object' && text !== null && text.toString === objectToString)) {
      throw new TypeError('JSON.parse was given an object, not text; answers of tools are parsed already, so use it as it is');
    }
    return reviver === undefined ? parseText(text) : parseText(text, reviver);
  } });

  // BigInts come from answers with integers beyond 2^53; without this JSON.stringify would throw on them.
  hidden(BigInt.prototype, { toJSON() { return this.toString(); } });

  // ---- hooks ----
  const safely = (read, fallback) => { try { return read(); } catch { return fallback; } };
  const summary = (error) => {
    const name = safely(() => StringOf(error.name), 'Error'), message = safely(() => StringOf(error.message), '');
    return message ? `${name}: ${message}` : name;
  };

  // A stand-in for what JSON has no word for; null when it must not be sent to a tool.
  const plain = (value, kind, purpose) => {
    switch (kind) {
      case 'Date': { const time = getTime(value); return time === time ? toISOString(value) : 'Invalid Date'; }
      case 'Map': {
        let byName = true;
        const pairs = [], object = {};
        mapForEach(value, (item, key) => {
          if ((typeof key !== 'string' && typeof key !== 'number') || hasOwn(object, StringOf(key))) byName = false;
          put(pairs, pairs.length, [key, item]);
          if (byName) put(object, StringOf(key), item);
        });
        return byName ? object : pairs;
      }
      case 'Set': {
        const items = [];
        setForEach(value, (item) => put(items, items.length, item));
        return items;
      }
      case 'Error': {
        const object = { name: safely(() => StringOf(value.name), 'Error'), message: safely(() => StringOf(value.message), '') };
        const own = keys(value);
        for (let i = 0; i < own.length; i++) if (own[i] !== 'stack') put(object, own[i], value[own[i]]);
        const cause = getOwnPropertyDescriptor(value, 'cause');
        if (cause && hasOwn(cause, 'value')) put(object, 'cause', cause.value);
        const errors = getOwnPropertyDescriptor(value, 'errors');
        if (errors && isArray(errors.value)) put(object, 'errors', errors.value);
        return object;
      }
      case 'RegExp': return regExpText(value);
      case 'Boxed': return value.valueOf();
      case 'ArrayBuffer': return plain(new BytesOf(value), 'TypedArray', purpose);
      case 'DataView': return plain(new BytesOf(value.buffer, value.byteOffset, value.byteLength), 'TypedArray', purpose);
      case 'TypedArray': {
        const items = [];
        for (let i = 0; i < lengthOf(value); i++) put(items, i, value[i]);
        return items;
      }
      case 'Function': return purpose === 0 ? null : `[Function: ${safely(() => StringOf(value.name), '') || 'anonymous'}]`;
      case 'Symbol': return `[${StringOf(value)}]`;
      default:
        if (isError(value)) return plain(value, 'Error', purpose);
        return purpose === 0 ? null : tag(value);
    }
  };

  const revive = (json) => parse(json, (key, value, context) =>
    (typeof value === 'number' && !isSafeInteger(value) && matches(/^-?\d+$/, context.source) !== null ? BigIntOf(context.source) : value));

  const toolError = ({ message, tool, data }, place) => {
    const error = new ToolError(message, tool, data);
    hidden(error, { stack: place });
    return error;
  };

  // What is said of an error stays readable, whatever the program put into it.
  const DESCRIBED_MAX = 20000;
  const brief = (read, fallback) => safely(() => {
    const all = read();
    return all.length > DESCRIBED_MAX ? `${slice(all, 0, DESCRIBED_MAX)}…` : all;
  }, fallback);
  const shown = (value) => (isError(value) ? summary(value) : text(value));
  const listed = (errors) => {
    let list = '';
    for (let i = 0; i < errors.length && i < 5; i++) list += `${i ? ';' : ':'} ${shown(errors[i])}`;
    return errors.length > 5 ? `${list}; and ${errors.length - 5} more` : list;
  };
  const describe = (reason) => {
    if (!isError(reason)) return { __proto__: null, thrown: brief(() => text(reason), 'something that cannot be shown') };
    const described = {
      __proto__: null,
      name: brief(() => StringOf(reason.name), 'Error'),
      message: brief(() => StringOf(reason.message), ''),
      stack: brief(() => (typeof reason.stack === 'string' ? reason.stack : ''), ''),
    };
    if (safely(() => reason instanceof AggregateErrorOf && isArray(reason.errors), false)) described.message = (described.message || 'All promises were rejected') + brief(() => listed(reason.errors), '');
    const cause = safely(() => reason.cause);
    if (cause !== undefined) described.cause = brief(() => shown(cause), '');
    const violations = safely(() => (isArray(reason.violations) ? stringify(reason.violations) : undefined));
    if (violations !== undefined) {
      described.tool = brief(() => StringOf(reason.tool), '');
      described.violations = brief(() => violations, '[]');
    }
    if (safely(() => reason instanceof ToolError, false)) {
      const tool = safely(() => reason.tool);
      if (tool !== undefined) described.tool = brief(() => StringOf(tool), '');
      described.data = brief(() => stringify(reason.data) ?? 'null', 'null');
    }
    return described;
  };

  const intl = {
    compare: (a, b, strength, flags) => compare(a, b, strength | (flags << 3)),
    zoneOffset: (zone, epochMs) => { const answer = ask(ZONE_OFFSET, stringify([`${zone}`, epochMs])); return answer === undefined ? undefined : NumberOf(answer); },
    zoneName: (zone) => ask(ZONE_NAME, `${zone}`),
  };

  // ---- habits of other systems ----
  // Defined only for programs that use them, and only where no tool has the name.
  const ALL_TOOLS = 7, LOAD = 9;
  const nameOf = (name, call) => {
    if (typeof name !== 'string' || name === '') throw new TypeError(`${call} needs a name: a text that is not empty`);
    return name;
  };
  const PromiseOf = Promise, reject = Promise.reject.bind(Promise);
  const imported = (name, member) => {
    const names = module(`${name}`);
    // Throws for a module that JavaScript has elsewhere.
    const whole = names.default;
    return member === undefined ? names : member in names ? names[member] : whole;
  };
  const callTool = (name, ...args) => {
    try {
      if (typeof name === 'object' && name !== null) return tools[`${name.name ?? name.tool ?? name.tool_name}`](name.arguments ?? name.args ?? name.input ?? name.params);
      // callTool("server", "tool", args)
      if (typeof args[0] === 'string' && `${name}.${args[0]}` in tools) return tools[`${name}.${args[0]}`](args[1]);
      return tools[`${name}`](...args);
    } catch (error) {
      return reject(error);
    }
  };
  const output = (name) => ({ [name]: (...args) => write('log', format(args)) })[name];
  const handleOf = (value) => (typeof value === 'object' && value !== null && typeof value.handle === 'string' ? value.handle : value);
  const habit = (name) => {
    switch (name) {
      case 'text': case 'print': case 'emit': case 'notify': case 'progress': return output(name);
      case 'image': return function image(value) { write('log', text(handleOf(value))); };
      case 'sleep': return function sleep(ms) { return new PromiseOf((resolve) => { setTimer(resolve, NumberOf(ms), false, []); }); };
      case 'require': return function require(module) { return imported(module); };
      case 'store': return (name, value) => store(nameOf(name, 'store(name, value)'), value);
      case 'load': return (name) => {
        const json = ask(LOAD, nameOf(name, 'load(name)'));
        return json === undefined ? undefined : matches(/\d{16}/, json) === null ? parse(json) : revive(json);
      };
      case 'ALL_TOOLS': return parse(ask(ALL_TOOLS, ''));
      case 'search': case 'describe': return globalThis[name];
      case 'import': return imported;
      case 'default': return entry;
      default: return callTool;
    }
  };
  // The argument of an entry function.
  const entry = Object.create(tools);
  hidden(entry, { tools, console });
  return { revive, describe, toolError, plain, habit, imported, intl };
})
