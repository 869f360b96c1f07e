((host) => {
  "use strict";

  // ---------------------------------------------------------------- locales

  const LOCALE_ALIAS = { en: "en-US", de: "de-DE", fr: "fr-FR", sv: "sv-SE" };
  const TAG = /^([a-z]{2,3}|[a-z]{5,8})(-[a-z]{4})?(-(?:[a-z]{2}|\d{3}))?((?:-(?:[a-z\d]{5,8}|\d[a-z\d]{3}))*)((?:-[a-wyz\d](?:-[a-z\d]{2,8})+)*)(-x(?:-[a-z\d]{1,8})+)?$/;

  const canonicalTag = (tag) => {
    const match = TAG.exec(tag.toLowerCase());
    const singletons = match && (match[5].match(/-[a-z\d](?=-)/g) || []);
    const variants = match && match[4].split("-").slice(1);
    if (!match || new Set(singletons).size !== singletons.length || new Set(variants).size !== variants.length)
      throw new RangeError(`Incorrect locale information provided: ${tag}`);
    const [, language, script = "", region = "", , extensions, privateUse = ""] = match;
    return language + script.replace(/[a-z]/, (letter) => letter.toUpperCase()) + region.toUpperCase() + variants.sort().map((variant) => "-" + variant).join("") + extensions + privateUse;
  };

  const canonicalList = (locales) => {
    if (locales === undefined) return [];
    if (locales === null) throw new TypeError("Cannot convert undefined or null to object");
    const list = typeof locales === "string" ? [locales] : Array.from(Object(locales));
    return [...new Set(list.map((tag) => {
      if (typeof tag !== "string" && (typeof tag !== "object" || tag === null)) throw new TypeError("Incorrect locale information provided");
      return canonicalTag(String(tag));
    }))];
  };

  // Extension keys that only restate what every supported locale does already.
  const HARMLESS_EXTENSION = { nu: "latn", ca: "gregory" };

  const splitTag = (tag) => {
    const at = tag.search(/-[a-z\d]-/);
    return at < 0 ? [tag, ""] : [tag.slice(0, at), tag.slice(at)];
  };

  const lookup = (tag, allowed) => {
    const [base, extension] = splitTag(tag);
    const data = LOCALE_ALIAS[base] ?? base;
    if (!allowed.includes(data)) return undefined;
    if (extension) {
      const keywords = /^-u((?:-[a-z\d]{2}-[a-z\d]{3,8})+)$/.exec(extension);
      if (!keywords) return undefined;
      const words = keywords[1].split("-").slice(1);
      for (let i = 0; i < words.length; i += 2) if (HARMLESS_EXTENSION[words[i]] !== words[i + 1]) return undefined;
    }
    return { tag: base, data };
  };

  const resolveLocale = (service, locales, allowed) => {
    if (locales === undefined || locales === "en-US" || locales === "default") return { tag: "en-US", data: "en-US" };
    const [tag] = canonicalList(locales);
    if (tag === undefined) return { tag: "en-US", data: "en-US" };
    const found = lookup(tag, allowed);
    if (found) return found;
    const known = allowed.length > 1 ? ` (and, in part, ${allowed.slice(1).join(", ")})` : "";
    throw new RangeError(`${service}: the locale "${tag}" is not available here; only "en-US"${known} is: leave the locale out or use "en-US"`);
  };

  const unsupported = (service, what) => new RangeError(`${service}: ${what} is not available here`);

  // ---------------------------------------------------------------- options

  const optionReader = (service, options, coerce) => {
    if (options === undefined) options = {};
    else if (options === null) throw new TypeError("Cannot convert undefined or null to object");
    else if (typeof options !== "object" && typeof options !== "function") {
      if (!coerce) throw new TypeError(`${service}: options must be an object`);
      options = Object(options);
    }
    const read = (name, allowed, fallback) => {
      let value = options[name];
      if (value === undefined) return fallback;
      if (allowed === Boolean) return Boolean(value);
      value = String(value);
      if (allowed && !allowed.includes(value)) throw new RangeError(`Value ${value} out of range for ${service} options property ${name}`);
      return value;
    };
    read.number = (name, min, max, fallback) => {
      const value = options[name];
      if (value === undefined) return fallback;
      const number = Number(value);
      if (!(number >= min && number <= max)) throw new RangeError(`${name} value is out of range.`);
      return Math.floor(number);
    };
    read.raw = (name) => options[name];
    read("localeMatcher", ["lookup", "best fit"]);
    return read;
  };

  const onlyValue = (read, service, name, only) => {
    const value = read(name);
    if (value !== undefined && value !== only) throw new RangeError(`${service}: only ${name} "${only}" is available here, not "${value}"`);
  };

  const method = (name, length, body) => {
    const fn = { [name](...args) { return body(this, args); } }[name];
    return Object.defineProperty(fn, "length", { value: length });
  };
  const hide = (object, name, value) => Object.defineProperty(object, name, { value, writable: true, enumerable: false, configurable: true });

  const Intl = {};
  Object.defineProperty(Intl, Symbol.toStringTag, { value: "Intl", configurable: true });

  // Private state lives in a WeakMap so that programs see only the specified surface.
  const service = (name, { allowed, create, methods, getters = {}, callable = false, needsArgument = 0 }) => {
    const label = `Intl.${name}`;
    const slots = new WeakMap();
    const Constructor = { [name]: function (locales, options) {
      if (!new.target) {
        if (!callable) throw new TypeError(`Constructor ${label} requires 'new'`);
        return new Constructor(locales, options);
      }
      slots.set(this, create(locales, options));
    } }[name];
    Object.defineProperty(Constructor, "length", { value: needsArgument });
    const slot = (self, key) => {
      const state = slots.get(self);
      if (!state) throw new TypeError(`Method ${label}.prototype.${key} called on incompatible receiver ${String(self)}`);
      return state;
    };
    const prototype = Constructor.prototype;
    for (const key of Object.keys(methods)) {
      const body = methods[key];
      hide(prototype, key, method(key, body.length - 1, (self, args) => body(slot(self, key), ...args)));
    }
    for (const key of Object.keys(getters)) {
      const get = Object.getOwnPropertyDescriptor({ get [key]() {
        const state = slot(this, key);
        return state.bound ??= getters[key](state);
      } }, key).get;
      Object.defineProperty(prototype, key, { get, configurable: true });
    }
    Object.defineProperty(prototype, Symbol.toStringTag, { value: label, configurable: true });
    Object.defineProperty(Constructor, "prototype", { writable: false });
    hide(Constructor, "supportedLocalesOf", method("supportedLocalesOf", 1, (_, [locales, options]) => {
      optionReader(label, options, true);
      return canonicalList(locales).filter((tag) => lookup(tag, allowed));
    }));
    hide(Intl, name, Constructor);
  };

  const anonymous = (length, body) => Object.defineProperty(body, "length", { value: length }) && Object.defineProperty(body, "name", { value: "" });

  // ---------------------------------------------------------------- decimals

  // A decimal is { negative, digits, point }: 0.digits × 10^point, without leading or
  // trailing zeros; zero has no digits. NaN and Infinity carry `special`.
  const decimal = (negative, digits, point) => {
    let start = 0, end = digits.length;
    while (start < end && digits.charCodeAt(start) === 48) start++;
    while (end > start && digits.charCodeAt(end - 1) === 48) end--;
    return start === end ? { negative, digits: "", point: 0 } : { negative, digits: digits.slice(start, end), point: point - start };
  };

  const NUMERAL = /^([+-]?)(?:(\d+)\.?(\d*)|\.(\d+))(?:e([+-]?\d+))?$/i;

  const parseNumeral = (text) => {
    const [, sign, whole = "", fraction = "", bare = "", exponent = "0"] = NUMERAL.exec(text);
    return decimal(sign === "-", whole + fraction + bare, whole.length + Number(exponent));
  };

  const toDecimal = (value) => {
    if (typeof value === "object" && value !== null || typeof value === "function") {
      const primitive = value[Symbol.toPrimitive];
      value = primitive ? primitive.call(value, "number") : typeof value.valueOf() !== "object" ? value.valueOf() : value.toString();
    }
    if (typeof value === "bigint") {
      const text = value.toString();
      return value < 0n ? decimal(true, text.slice(1), text.length - 1) : decimal(false, text, text.length);
    }
    if (typeof value === "string") {
      const text = value.trim();
      if (NUMERAL.test(text) && Math.abs(Number(/e(.*)$/i.exec(text)?.[1] ?? 0)) < 1000) return parseNumeral(text);
      if (/^0[xob]/i.test(text) && !Number.isNaN(Number(text))) return toDecimal(BigInt(text));
    }
    const number = Number(value);
    if (Number.isNaN(number)) return { special: "nan", negative: false };
    const negative = number < 0 || Object.is(number, -0);
    if (Math.abs(number) === Infinity) return { special: "infinity", negative };
    return parseNumeral((negative ? "-" : "") + Math.abs(number));
  };

  const roundsUp = (mode, half, negative, odd) => {
    switch (mode) {
      case "ceil": return !negative;
      case "floor": return negative;
      case "expand": return true;
      case "trunc": return false;
      case "halfCeil": return half > 0 || half === 0 && !negative;
      case "halfFloor": return half > 0 || half === 0 && negative;
      case "halfTrunc": return half > 0;
      case "halfEven": return half > 0 || half === 0 && odd;
      default: return half >= 0;
    }
  };

  // Keeps `keep` digits of the coefficient (may be negative), rounding to a multiple of `increment`.
  const roundDecimal = (value, keep, mode, increment = 1) => {
    const { negative, digits, point } = value;
    if (!digits || increment === 1 && keep >= digits.length) return value;
    const head = keep > 0 ? BigInt(digits.slice(0, keep).padEnd(keep, "0")) : 0n;
    const tail = keep >= 0 ? digits.slice(keep) : "0".repeat(-keep) + digits;
    const rest = Number(head % BigInt(increment));
    const tailHalf = tail === "" ? -1 : tail[0] !== "5" ? (tail[0] > "5" ? 1 : -1) : tail.length > 1 ? 1 : 0;
    if (rest === 0 && tail === "") return value;
    const middle = Math.floor(increment / 2);
    const half = rest !== middle ? Math.sign(rest - middle) : increment % 2 ? tailHalf : tail === "" ? 0 : 1;
    const lower = head - BigInt(rest);
    const odd = lower / BigInt(increment) % 2n === 1n;
    const text = (roundsUp(mode, half, negative, odd) ? lower + BigInt(increment) : lower).toString();
    // The last kept digit weighs 10^(point - keep).
    return decimal(negative, text, text.length + point - keep);
  };

  const magnitude = (value) => (value.digits ? value.point - 1 : 0);

  // Rounds and lays out one decimal: returns the value, its integer and fraction digits.
  const layOut = (value, rule) => {
    let rounded, minFraction;
    if (rule.type === "fractionDigits") {
      rounded = roundDecimal(value, value.point + rule.maxFraction, rule.mode, rule.increment);
      minFraction = rule.minFraction;
    } else if (rule.type === "significantDigits") {
      rounded = roundDecimal(value, rule.maxSignificant, rule.mode);
      minFraction = Math.max(0, rule.minSignificant - 1 - magnitude(rounded));
    } else {
      const relaxed = rule.type === "morePrecision";
      const byFraction = -rule.maxFraction;
      let bySignificant = magnitude(value) - rule.maxSignificant + 1;
      const limit = relaxed ? Math.min(byFraction, bySignificant) : Math.max(byFraction, bySignificant);
      rounded = roundDecimal(value, value.point - limit, rule.mode);
      if (rounded.digits && value.digits && magnitude(rounded) !== magnitude(value) && byFraction === bySignificant) bySignificant++;
      minFraction = (bySignificant <= byFraction) === relaxed
        ? Math.max(0, rule.minSignificant - 1 - magnitude(rounded)) : rule.minFraction;
    }
    const { digits, point } = rounded;
    const whole = point <= 0 ? "0" : digits.slice(0, point).padEnd(point, "0");
    let fraction = point >= digits.length ? "" : point < 0 ? "0".repeat(-point) + digits : digits.slice(point);
    if (fraction.length < minFraction) fraction = fraction.padEnd(minFraction, "0");
    if (rule.strip && /^0*$/.test(fraction)) fraction = "";
    return { rounded, whole: digits || rule.minInteger > 1 ? whole.padStart(rule.minInteger, "0") : "0", fraction };
  };

  const groupDigits = (whole, { group, secondary = 3 }, minimum) => {
    if (whole.length < 3 + minimum) return [whole];
    const pieces = [whole.slice(-3)];
    let end = whole.length - 3;
    for (; end > secondary; end -= secondary) pieces.unshift(whole.slice(end - secondary, end));
    pieces.unshift(whole.slice(0, end));
    return pieces;
  };

  // ---------------------------------------------------------------- NumberFormat data

  const table = (text) => Object.fromEntries(text.split(";").map((entry) => {
    const at = entry.indexOf(":");
    return [entry.slice(0, at).trim(), entry.slice(at + 1)];
  }));
  const lazily = (make) => {
    let made;
    return () => (made ??= make());
  };

  const symbolsUS = "AUD:A$;BRL:R$;CAD:CA$;CNY:CN¥;EUR:€;GBP:£;HKD:HK$;ILS:₪;INR:₹;JPY:¥;KRW:₩;MXN:MX$;NZD:NZ$;PHP:₱;TWD:NT$;USD:$;VND:₫;XAF:FCFA;XCD:EC$;XCG:Cg.;XOF:F\u202fCFA;XPF:CFPF;XXX:¤";
  const SYMBOLS = {
    "en-US": lazily(() => table(symbolsUS)),
    "en-GB": lazily(() => ({ ...table(symbolsUS), JPY: "JP¥", USD: "US$" })),
    "en-IN": lazily(() => ({ ...table(symbolsUS), JPY: "JP¥" })),
    "de-DE": lazily(() => {
      const symbols = { ...table(symbolsUS), AUD: "AU$", THB: "฿" };
      delete symbols.PHP;
      return symbols;
    }),
    "fr-FR": lazily(() => table("ARS:$AR;AUD:$AU;BMD:$BM;BND:$BN;BRL:R$;BZD:$BZ;CAD:$CA;CLP:$CL;COP:$CO;EUR:€;FJD:$FJ;FKP:£FK;GBP:£GB;GIP:£GI;ILS:₪;INR:₹;KRW:₩;LBP:£LB;MXN:$MX;NAD:$NA;NZD:$NZ;SBD:$SB;SGD:$SG;SRD:$SR;TTD:$TT;USD:$US;UYU:$UY;VND:₫;WST:$WS;XAF:FCFA;XCG:Cg.;XOF:F\u202fCFA;XPF:FCFP;XXX:¤")),
  };
  const narrowSymbols = lazily(() => {
    const narrow = table("AFN:؋;AMD:֏;AOA:Kz;AZN:₼;BAM:KM;BDT:৳;BOB:Bs;BWP:P;CNY:¥;CRC:₡;CZK:Kč;DKK:kr;EGP:E£;ESP:₧;FKP:£;GEL:₾;GHS:GH₵;GIP:£;GNF:FG;GTQ:Q;HNL:L;HRK:kn;HUF:Ft;IDR:Rp;ISK:kr;JPY:¥;KGS:⃀;KHR:៛;KMF:CF;KPW:₩;KZT:₸;LAK:₭;LBP:L£;LKR:Rs;LTL:Lt;LVL:Ls;MGA:Ar;MMK:K;MNT:₮;MUR:Rs;MYR:RM;NGN:₦;NIO:C$;NOK:kr;NPR:Rs;PKR:Rs;PLN:zł;PYG:₲;RON:lei;RUB:₽;RWF:RF;SEK:kr;SHP:£;SSP:£;STN:Db;SYP:£;THB:฿;TOP:T$;TRY:₺;UAH:₴;VEF:Bs;ZAR:R;ZMW:ZK");
    for (const code of "ARS AUD BBD BMD BND BSD BZD CAD CLP COP CUC CUP DOP FJD GYD HKD JMD KYD LRD MXN NAD NZD SBD SGD SRD TTD TWD USD UYU XCD".split(" ")) narrow[code] = "$";
    return narrow;
  });
  // Without "|" the plural adds an s.
  const currencyNames = lazily(() => table(`AED:UAE dirham;AFN:Afghan Afghani;ALL:Albanian lek|Albanian lekë;AMD:Armenian dram;ANG:Netherlands Antillean guilder;AOA:Angolan kwanza;ARS:Argentine peso;AUD:Australian dollar;AWG:Aruban florin|Aruban florin;AZN:Azerbaijani manat;BAM:Bosnia-Herzegovina convertible mark;BBD:Barbadian dollar;BDT:Bangladeshi taka;BGN:Bulgarian lev|Bulgarian leva;BHD:Bahraini dinar;BIF:Burundian franc;BMD:Bermudan dollar;BND:Brunei dollar;BOB:Bolivian boliviano;BRL:Brazilian real;BSD:Bahamian dollar;BTN:Bhutanese ngultrum;BWP:Botswanan pula;BYN:Belarusian ruble;BZD:Belize dollar;CAD:Canadian dollar;CDF:Congolese franc;CHF:Swiss franc;CLP:Chilean peso;CNY:Chinese yuan|Chinese yuan;COP:Colombian peso;CRC:Costa Rican colón;CUC:Cuban convertible peso;CUP:Cuban peso;CVE:Cape Verdean escudo;CZK:Czech koruna;DJF:Djiboutian franc;DKK:Danish krone|Danish kroner;DOP:Dominican peso;DZD:Algerian dinar;EGP:Egyptian pound;ERN:Eritrean nakfa;ETB:Ethiopian birr;EUR:euro;FJD:Fijian dollar;FKP:Falkland Islands pound;GBP:British pound;GEL:Georgian lari;GHS:Ghanaian cedi;GIP:Gibraltar pound;GMD:Gambian dalasi;GNF:Guinean franc;GTQ:Guatemalan quetzal;GYD:Guyanaese dollar;HKD:Hong Kong dollar;HNL:Honduran lempira;HRK:Croatian kuna;HTG:Haitian gourde;HUF:Hungarian forint;IDR:Indonesian rupiah;ILS:Israeli new shekel;INR:Indian rupee;IQD:Iraqi dinar;IRR:Iranian rial;ISK:Icelandic króna|Icelandic krónur;JMD:Jamaican dollar;JOD:Jordanian dinar;JPY:Japanese yen|Japanese yen;KES:Kenyan shilling;KGS:Kyrgyz som;KHR:Cambodian riel;KMF:Comorian franc;KPW:North Korean won|North Korean won;KRW:South Korean won|South Korean won;KWD:Kuwaiti dinar;KYD:Cayman Islands dollar;KZT:Kazakhstani tenge;LAK:Laotian kip;LBP:Lebanese pound;LKR:Sri Lankan rupee;LRD:Liberian dollar;LSL:Lesotho loti;LYD:Libyan dinar;MAD:Moroccan dirham;MDL:Moldovan leu|Moldovan lei;MGA:Malagasy ariary|Malagasy ariaries;MKD:Macedonian denar|Macedonian denari;MMK:Myanmar kyat;MNT:Mongolian tugrik;MOP:Macanese pataca;MRU:Mauritanian ouguiya;MUR:Mauritian rupee;MVR:Maldivian rufiyaa;MWK:Malawian kwacha;MXN:Mexican peso;MYR:Malaysian ringgit;MZN:Mozambican metical;NAD:Namibian dollar;NGN:Nigerian naira;NIO:Nicaraguan córdoba;NOK:Norwegian krone|Norwegian kroner;NPR:Nepalese rupee;NZD:New Zealand dollar;OMR:Omani rial;PAB:Panamanian balboa;PEN:Peruvian sol|Peruvian soles;PGK:Papua New Guinean kina|Papua New Guinean kina;PHP:Philippine peso;PKR:Pakistani rupee;PLN:Polish zloty;PYG:Paraguayan guarani;QAR:Qatari riyal;RON:Romanian leu|Romanian lei;RSD:Serbian dinar;RUB:Russian ruble;RWF:Rwandan franc;SAR:Saudi riyal;SBD:Solomon Islands dollar;SCR:Seychellois rupee;SDG:Sudanese pound;SEK:Swedish krona|Swedish kronor;SGD:Singapore dollar;SHP:St. Helena pound;SLE:Sierra Leonean leone;SOS:Somali shilling;SRD:Surinamese dollar;SSP:South Sudanese pound;STN:São Tomé & Príncipe dobra;SVC:Salvadoran colón|Salvadoran colones;SYP:Syrian pound;SZL:Swazi lilangeni|Swazi emalangeni;THB:Thai baht|Thai baht;TJS:Tajikistani somoni;TMT:Turkmenistani manat|Turkmenistani manat;TND:Tunisian dinar;TOP:Tongan paʻanga|Tongan paʻanga;TRY:Turkish lira|Turkish Lira;TTD:Trinidad & Tobago dollar;TWD:New Taiwan dollar;TZS:Tanzanian shilling;UAH:Ukrainian hryvnia;UGX:Ugandan shilling;USD:US dollar;UYU:Uruguayan peso;UZS:Uzbekistani som|Uzbekistani som;VES:Venezuelan bolívar;VND:Vietnamese dong|Vietnamese dong;VUV:Vanuatu vatu;WST:Samoan tala|Samoan tala;XAF:Central African CFA franc;XCD:East Caribbean dollar;XCG:Caribbean guilder;XOF:West African CFA franc;XPF:CFP franc;YER:Yemeni rial;ZAR:South African rand|South African rand;ZMW:Zambian kwacha`));
  const MINOR_DIGITS = (() => {
    const digits = { CLF: 4, UYW: 4 };
    for (const code of "ADP AFN ALL BIF BYR CLP COP DJF ESP GNF HUF IDR IQD IRR ISK ITL JPY KMF KPW KRW LAK LBP LUF MGA MGF MMK MRO PKR PYG RWF SLL SOS STD SYP TMM TRL UGX UYI VND VUV XAF XOF XPF YER ZMK ZWD".split(" ")) digits[code] = 0;
    for (const code of "BHD JOD KWD LYD OMR TND".split(" ")) digits[code] = 3;
    return digits;
  })();

  // short[,plural];narrow;long[,plural] — an absent narrow repeats the short form.
  const UNITS = lazily(() => {
    const units = {};
    for (const line of `acre/ac//acre|bit/bit//bit|byte/byte/B/byte|celsius/°C//degree Celsius,degrees Celsius|centimeter/cm//centimeter|day/day,days/d/day|degree/deg/°/degree|fahrenheit/°F/°/degree Fahrenheit,degrees Fahrenheit|fluid-ounce/fl oz//fluid ounce|foot/ft/′/foot,feet|gallon/gal//gallon|gigabit/Gb//gigabit|gigabyte/GB//gigabyte|gram/g//gram|hectare/ha//hectare|hour/hr/h/hour|inch/in/″/inch,inches|kilobit/kb//kilobit|kilobyte/kB//kilobyte|kilogram/kg//kilogram|kilometer/km//kilometer|liter/L//liter|megabit/Mb//megabit|megabyte/MB//megabyte|meter/m//meter|microsecond/μs//microsecond|mile/mi//mile|mile-scandinavian/smi//mile-scandinavian,miles-scandinavian|milliliter/mL//milliliter|millimeter/mm//millimeter|millisecond/ms//millisecond|minute/min/m/minute|month/mth,mths/m/month|nanosecond/ns//nanosecond|ounce/oz//ounce|percent/%//percent,percent|petabyte/PB//petabyte|pound/lb/#/pound|second/sec/s/second|stone/st//stone|terabit/Tb//terabit|terabyte/TB//terabyte|week/wk,wks/w/week|yard/yd//yard|year/yr,yrs/y/year`.split("|")) {
      const [name, short, narrow, long] = line.split("/");
      const pair = (text, plural) => (text.includes(",") ? text.split(",") : [text, text + plural]);
      units[name] = { short: pair(short, ""), narrow: pair(narrow || short.split(",")[0], ""), long: pair(long, "s") };
    }
    return units;
  });
  const PER_SYMBOL = { day: "d", gallon: "gal US", hour: "h", month: "m", second: "s", week: "w", year: "y" };
  const PER_NARROW = { byte: "B", degree: "°", fahrenheit: "°", gallon: "gal" };

  const COMPACT_LONG = ["", "thousand", "million", "billion", "trillion"];
  const NUMBER_LOCALES = {
    "en-US": { point: ".", group: ",", compact: ["", "K", "M", "B", "T"] },
    "en-GB": { point: ".", group: ",", compact: ["", "k", "m", "bn", "tn"] },
    "en-CA": { point: ".", group: ",", styles: ["decimal", "percent"] },
    "en-IN": { point: ".", group: ",", secondary: 2, styles: ["decimal", "percent", "currency"] },
    "de-DE": { point: ",", group: ".", suffix: true, styles: ["decimal", "percent", "currency"] },
    "fr-FR": { point: ",", group: "\u202f", suffix: true, parentheses: true, styles: ["decimal", "percent", "currency"] },
  };
  const NUMBER_LOCALE_NAMES = Object.keys(NUMBER_LOCALES);
  const ROUNDING_MODES = ["ceil", "floor", "expand", "trunc", "halfCeil", "halfFloor", "halfExpand", "halfTrunc", "halfEven"];
  const INCREMENTS = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 2500, 5000];

  // ---------------------------------------------------------------- NumberFormat

  const readDigits = (read, minDefault, maxDefault, compact) => {
    const minInteger = read.number("minimumIntegerDigits", 1, 21, 1);
    const given = (name) => read.raw(name) !== undefined;
    const hasFraction = given("minimumFractionDigits") || given("maximumFractionDigits");
    const hasSignificant = given("minimumSignificantDigits") || given("maximumSignificantDigits");
    const rawIncrement = read.raw("roundingIncrement");
    const increment = rawIncrement === undefined ? 1 : Math.floor(Number(rawIncrement));
    if (!INCREMENTS.includes(increment)) throw new RangeError("roundingIncrement value is out of range.");
    const mode = read("roundingMode", ROUNDING_MODES, "halfExpand");
    const priority = read("roundingPriority", ["auto", "morePrecision", "lessPrecision"], "auto");
    const trailing = read("trailingZeroDisplay", ["auto", "stripIfInteger"], "auto");
    if (increment !== 1) maxDefault = minDefault;
    let needSignificant = true, needFraction = true;
    if (priority === "auto") {
      needSignificant = hasSignificant;
      if (needSignificant || !hasFraction && compact) needFraction = false;
    }
    const rule = { type: "fractionDigits", minInteger, mode, increment, priority, trailing, strip: trailing === "stripIfInteger" };
    if (needSignificant) {
      rule.minSignificant = read.number("minimumSignificantDigits", 1, 21, 1);
      rule.maxSignificant = read.number("maximumSignificantDigits", rule.minSignificant, 21, 21);
    }
    if (needFraction) {
      let min = read.number("minimumFractionDigits", 0, 100);
      let max = read.number("maximumFractionDigits", 0, 100);
      if (min === undefined) min = max === undefined ? minDefault : Math.min(minDefault, max);
      if (max === undefined) max = Math.max(maxDefault, min);
      if (min > max) throw new RangeError("maximumFractionDigits value is out of range.");
      rule.minFraction = min;
      rule.maxFraction = max;
    }
    if (!needSignificant && !needFraction)
      Object.assign(rule, { type: "morePrecision", priority: "morePrecision", minSignificant: 1, maxSignificant: 2, minFraction: 0, maxFraction: 0 });
    else if (priority !== "auto") rule.type = priority;
    else if (hasSignificant) rule.type = "significantDigits";
    if (increment !== 1) {
      if (rule.type !== "fractionDigits") throw new TypeError("roundingIncrement needs fraction digits");
      if (rule.minFraction !== rule.maxFraction) throw new RangeError("maximumFractionDigits not equal to minimumFractionDigits");
    }
    return rule;
  };

  const digitOptions = (rule) => ({
    minimumIntegerDigits: rule.minInteger,
    ...(rule.type !== "significantDigits" && { minimumFractionDigits: rule.minFraction, maximumFractionDigits: rule.maxFraction }),
    ...(rule.type !== "fractionDigits" && { minimumSignificantDigits: rule.minSignificant, maximumSignificantDigits: rule.maxSignificant }),
  });

  const createNumberFormat = (locales, options) => {
    const label = "Intl.NumberFormat";
    const locale = resolveLocale(label, locales, NUMBER_LOCALE_NAMES);
    const data = NUMBER_LOCALES[locale.data];
    const read = optionReader(label, options, true);
    onlyValue(read, label, "numberingSystem", "latn");
    const style = read("style", ["decimal", "percent", "currency", "unit"], "decimal");
    if (data.styles && !data.styles.includes(style)) throw unsupported(label, `style "${style}" for the locale "${locale.tag}"`);
    const nf = { locale, data, style };

    const currency = read("currency");
    if (currency !== undefined && !/^[a-z]{3}$/i.test(currency)) throw new RangeError(`Invalid currency code : ${currency}`);
    const currencyDisplay = read("currencyDisplay", ["code", "symbol", "narrowSymbol", "name"], "symbol");
    const currencySign = read("currencySign", ["standard", "accounting"], "standard");
    const unit = read("unit");
    const unitDisplay = read("unitDisplay", ["short", "narrow", "long"], "short");
    const [numerator, denominator] = unit === undefined ? [] : unit.split("-per-");
    if (unit !== undefined && !(UNITS()[numerator] && (denominator === undefined || UNITS()[denominator]) && unit.split("-per-").length < 3))
      throw new RangeError(`Invalid unit argument for Intl.NumberFormat() '${unit}'`);
    if (style === "currency") {
      if (currency === undefined) throw new TypeError("Currency code is required with currency style.");
      nf.currency = currency.toUpperCase();
      nf.currencyDisplay = currencyDisplay;
      nf.currencySign = currencySign;
      nf.accounting = currencySign === "accounting" && (!data.suffix || data.parentheses);
      if (locale.data !== "en-US" && !currencyNames()[nf.currency]) throw unsupported(label, `the currency "${nf.currency}" for the locale "${locale.tag}"`);
      if (currencyDisplay === "name") {
        nf.names = currencyNames()[nf.currency]?.split("|");
        if (!nf.names || locale.data !== "en-US") throw unsupported(label, `the ${locale.tag} name of the currency "${nf.currency}"`);
        nf.names[1] ??= nf.names[0] + "s";
      } else {
        if (currencyDisplay === "narrowSymbol" && data.styles) throw unsupported(label, `currencyDisplay "narrowSymbol" for the locale "${locale.tag}"`);
        const symbol = SYMBOLS[locale.data]()[nf.currency] ?? nf.currency;
        nf.symbol = currencyDisplay === "code" ? nf.currency : currencyDisplay === "symbol" ? symbol : narrowSymbols()[nf.currency] ?? symbol;
        nf.spaced = !/[\p{S}\p{Z}]$/u.test(nf.symbol);
      }
    }
    if (style === "unit") {
      if (unit === undefined) throw new TypeError("Invalid unit argument for Intl.NumberFormat() ''");
      if (locale.data !== "en-US") throw unsupported(label, `style "unit" for the locale "${locale.tag}"`);
      nf.unit = unit;
      nf.unitDisplay = unitDisplay;
      nf.names = unitNames(unit, numerator, denominator, unitDisplay);
      if (!nf.names) throw unsupported(label, `the unit "${unit}"`);
      nf.unitSpace = unitDisplay === "long" || unitDisplay === "short" && !/^[°%]/.test(nf.names[0]);
    }

    nf.notation = read("notation", ["standard", "scientific", "engineering", "compact"], "standard");
    if (nf.notation === "compact" && !data.compact) throw unsupported(label, `notation "compact" for the locale "${locale.tag}"`);
    const minor = style === "currency" ? MINOR_DIGITS[nf.currency] ?? 2 : 0;
    nf.rule = readDigits(read, minor, style === "currency" ? minor : style === "percent" ? 0 : 3, nf.notation === "compact");
    if (nf.rule.increment !== 1 && nf.notation !== "standard") throw unsupported(label, `roundingIncrement with notation "${nf.notation}"`);
    const compactDisplay = read("compactDisplay", ["short", "long"], "short");
    if (nf.notation === "compact") nf.compactDisplay = compactDisplay;

    const grouping = read.raw("useGrouping");
    const defaultGrouping = nf.notation === "compact" ? "min2" : "auto";
    if (grouping === undefined || grouping === "true" || grouping === "false") nf.useGrouping = defaultGrouping;
    else if (grouping === true) nf.useGrouping = "always";
    else if (!grouping) nf.useGrouping = false;
    else nf.useGrouping = read("useGrouping", ["min2", "auto", "always"]);
    nf.minimumGrouping = nf.useGrouping === false ? Infinity : nf.useGrouping === "min2" || nf.useGrouping === "auto" && nf.notation === "compact" ? 2 : 1;
    nf.signDisplay = read("signDisplay", ["auto", "never", "always", "exceptZero", "negative"], "auto");
    // India's accounting pattern groups by thousands throughout.
    if (nf.accounting && data.secondary && nf.signDisplay !== "never") nf.accountingGroups = NUMBER_LOCALES["en-US"];
    nf.plain = style === "decimal" && nf.notation === "standard" && nf.signDisplay === "auto" && nf.rule.minInteger === 1 && !data.secondary;
    nf.plainIntegers = nf.plain && nf.rule.type === "fractionDigits" && nf.rule.minFraction === 0 && nf.rule.increment === 1;
    return nf;
  };

  const unitNames = (unit, numerator, denominator, display) => {
    const names = UNITS()[numerator][display];
    if (denominator === undefined) return names;
    if (numerator === "percent" || denominator === "percent" || numerator === denominator) return undefined;
    if (display === "long") return names.map((name) => `${name} per ${UNITS()[denominator].long[0]}`);
    if (unit === "mile-per-hour") return ["mph", "mph"];
    if (unit === "mile-per-gallon") return ["mpg", "mpg"];
    const per = display === "narrow" && PER_NARROW[denominator] || PER_SYMBOL[denominator] || UNITS()[denominator].short[0];
    return names.map((name) => `${name}/${per}`);
  };

  // The power of ten shown apart from the digits, settled together with the rounding:
  // 999,999 rounds to 1000K, which must become 1M.
  const scaled = (nf, value) => {
    const choose = (size) => {
      if (nf.notation === "scientific") return size;
      const step = Math.floor(size / 3) * 3;
      return nf.notation === "engineering" ? step : Math.min(Math.max(step, 0), 12);
    };
    const shift = (power) => layOut(value.digits ? { ...value, point: value.point - power } : value, nf.rule);
    let power = value.digits ? choose(magnitude(value)) : 0;
    let laid = shift(power);
    if (laid.rounded.digits) {
      const again = choose(magnitude(laid.rounded) + power);
      if (again !== power) laid = shift(power = again);
    }
    return { ...laid, power };
  };

  const signOf = (nf, negative, zero, nan) => {
    switch (nf.signDisplay) {
      case "never": return "";
      case "always": return negative ? "-" : "+";
      case "exceptZero": return zero || nan ? "" : negative ? "-" : "+";
      case "negative": return negative && !zero ? "-" : "";
      default: return negative ? "-" : "";
    }
  };

  const isOne = (whole, fraction) => fraction === "" && (whole === "1" || /^0+1$/.test(whole));

  // Returns { lead, body, tail }: affixes and digits, each a list of [type, text].
  const numberPieces = (nf, input) => {
    const { data, style } = nf;
    let value = input;
    if (style === "percent" && value.digits) value = { ...value, point: value.point + 2 };
    const body = [], lead = [], tail = [];
    let one = false, zero = false, scale = 0;
    if (value.special) body.push(value.special === "nan" ? ["nan", "NaN"] : ["infinity", "∞"]);
    else {
      const laid = nf.notation === "standard" ? layOut(value, nf.rule) : scaled(nf, value);
      const { whole, fraction, power = 0 } = laid;
      scale = power;
      zero = !laid.rounded.digits;
      one = isOne(whole, fraction) && power === 0;
      groupDigits(whole, nf.accountingGroups ?? data, nf.minimumGrouping).forEach((piece, index) => {
        if (index) body.push(["group", data.group]);
        body.push(["integer", piece]);
      });
      if (fraction) body.push(["decimal", data.point], ["fraction", fraction]);
      if (nf.notation === "scientific" || nf.notation === "engineering") {
        body.push(["exponentSeparator", "E"]);
        if (power < 0) body.push(["exponentMinusSign", "-"]);
        body.push(["exponentInteger", String(Math.abs(power))]);
      } else if (power) {
        const long = nf.compactDisplay === "long" && (style !== "currency" || nf.names);
        if (long) body.push(["literal", " "]);
        body.push(["compact", (long ? COMPACT_LONG : data.compact)[power / 3]]);
      }
    }
    const sign = signOf(nf, value.negative, zero, value.special === "nan");
    const signPiece = sign && [sign === "-" ? "minusSign" : "plusSign", sign];
    if (style === "currency" && !nf.names) {
      const parentheses = nf.accounting && sign === "-" && !(scale && nf.notation === "compact");
      if (parentheses) lead.push(["literal", "("]);
      else if (sign) lead.push(signPiece);
      if (data.suffix) tail.push(["literal", "\u00a0"], ["currency", nf.symbol]);
      else {
        lead.push(["currency", nf.symbol]);
        if (nf.spaced && !value.special) lead.push(["literal", "\u00a0"]);
      }
      if (parentheses) tail.push(["literal", ")"]);
      return { lead, body, tail };
    }
    if (sign) lead.push(signPiece);
    if (style === "percent") {
      if (data.suffix) tail.push(["literal", "\u00a0"]);
      // Compact percentages report their sign as a unit, as engines do.
      tail.push([nf.notation === "compact" ? "unit" : "percentSign", "%"]);
    } else if (nf.names) {
      if (style === "currency" || nf.unitSpace) tail.push(["literal", " "]);
      tail.push([style, nf.names[one ? 0 : 1]]);
    }
    return { lead, body, tail };
  };

  const numberParts = (nf, value) => {
    const { lead, body, tail } = numberPieces(nf, toDecimal(value));
    return [...lead, ...body, ...tail];
  };

  const joined = (pieces) => {
    let text = "";
    for (const piece of pieces) text += piece[1];
    return text;
  };

  const formatNumber = (nf, value) => {
    if (!nf.plain) return joined(numberParts(nf, value));
    if (nf.plainIntegers && Number.isSafeInteger(value) && (value !== 0 || 1 / value > 0)) {
      const text = String(value < 0 ? -value : value);
      return (value < 0 ? "-" : "") + (text.length < 3 + nf.minimumGrouping ? text : groupDigits(text, nf.data, nf.minimumGrouping).join(nf.data.group));
    }
    const parsed = toDecimal(value);
    if (parsed.special) return joined(numberPieces(nf, parsed).lead) + (parsed.special === "nan" ? "NaN" : "∞");
    const { whole, fraction } = layOut(parsed, nf.rule);
    return (parsed.negative ? "-" : "") + groupDigits(whole, nf.data, nf.minimumGrouping).join(nf.data.group) + (fraction && nf.data.point + fraction);
  };

  const toParts = (pieces) => pieces.map(([type, value]) => ({ type, value }));

  // Collapsing follows what CLDR's range pattern does for affixes: units written after the
  // number are said once; anything else set beside a digit spaces the dash.
  const numberRange = (nf, start, end) => {
    const label = "Intl.NumberFormat.prototype.formatRange";
    if (start === undefined || end === undefined) throw new TypeError(`${label}: start and end are required`);
    const [from, to] = [toDecimal(start), toDecimal(end)];
    if (from.special === "nan" || to.special === "nan") throw new RangeError("Invalid argument: NaN in a number range");
    const [first, last] = [numberPieces(nf, from), numberPieces(nf, to)];
    const flat = ({ lead, body, tail }) => joined([...lead, ...body, ...tail]);
    if (nf.locale.data !== "en-US" || nf.symbol?.length > 1 || nf.spaced || nf.accounting && (from.negative || to.negative)
      || nf.notation !== "standard" && nf.style !== "decimal" || nf.compactDisplay === "long" || nf.unit === "percent"
      || nf.notation === "compact" && (nf.useGrouping !== "min2" || from.negative || to.negative) || nf.signDisplay !== "auto" || from.special || to.special)
      throw unsupported(label, "this combination of options and values");
    const tagged = (pieces, source) => pieces.map(([type, value]) => ({ type, value, source }));
    if (flat(first) === flat(last)) {
      if (first.lead.some(([type]) => /Sign$/.test(type))) throw unsupported(label, "a range whose signed ends print alike");
      return tagged([["approximatelySign", "~"], ...first.lead, ...first.body, ...first.tail], "shared");
    }
    if (nf.style !== "decimal" && (from.negative || to.negative)) throw unsupported(label, "a signed range with units");
    if (nf.names) return [...tagged(first.body, "startRange"), ...tagged([["literal", "–"]], "shared"), ...tagged(last.body, "endRange"),
      ...tagged(last.tail.map(([type, value]) => [type, type === "literal" ? value : nf.names[1]]), "shared")];
    const bare = !first.lead.length && !first.tail.length && first.body.every(([type]) => type !== "compact" && type !== "exponentInteger");
    const all = ({ lead, body, tail }) => [...lead, ...body, ...tail];
    return [...tagged(all(first), "startRange"), ...tagged([["literal", bare ? "–" : " – "]], "shared"), ...tagged(all(last), "endRange")];
  };

  const numberOptions = (nf) => {
    const { rule } = nf;
    const options = { locale: nf.locale.tag, numberingSystem: "latn", style: nf.style };
    for (const name of ["currency", "currencyDisplay", "currencySign", "unit", "unitDisplay"]) if (nf[name] !== undefined) options[name] = nf[name];
    Object.assign(options, digitOptions(rule), { useGrouping: nf.useGrouping, notation: nf.notation });
    if (nf.compactDisplay) options.compactDisplay = nf.compactDisplay;
    return Object.assign(options, {
      signDisplay: nf.signDisplay, roundingIncrement: rule.increment, roundingMode: rule.mode,
      roundingPriority: rule.priority, trailingZeroDisplay: rule.trailing,
    });
  };

  service("NumberFormat", {
    allowed: NUMBER_LOCALE_NAMES, callable: true, create: createNumberFormat,
    getters: { format: (nf) => anonymous(1, (value) => formatNumber(nf, value)) },
    methods: {
      formatToParts: (nf, value) => toParts(numberParts(nf, value)),
      formatRange: (nf, start, end) => numberRange(nf, start, end).map((part) => part.value).join(""),
      formatRangeToParts: (nf, start, end) => numberRange(nf, start, end),
      resolvedOptions: (nf) => numberOptions(nf),
    },
  });

  // ---------------------------------------------------------------- PluralRules

  const ENGLISH = ["en-US", "en-GB", "en-CA", "en-IN"];

  const ordinalCategory = (whole) => {
    const two = Number(whole.slice(-2)), last = two % 10;
    if (two >= 11 && two <= 13) return "other";
    return last === 1 ? "one" : last === 2 ? "two" : last === 3 ? "few" : "other";
  };
  const pluralCategory = (pr, value) => {
    const parsed = toDecimal(Number(value));
    if (parsed.special) return "other";
    const { whole, fraction } = layOut(parsed, pr.rule);
    if (pr.type === "ordinal") return /[^0]/.test(fraction) ? "other" : ordinalCategory(whole);
    return isOne(whole, fraction) ? "one" : "other";
  };

  service("PluralRules", {
    allowed: ENGLISH,
    create(locales, options) {
      const locale = resolveLocale("Intl.PluralRules", locales, ENGLISH);
      const read = optionReader("Intl.PluralRules", options, true);
      return { locale, type: read("type", ["cardinal", "ordinal"], "cardinal"), rule: readDigits(read, 0, 3, false) };
    },
    methods: {
      select: (pr, value) => pluralCategory(pr, value),
      selectRange(pr, start, end) {
        if (start === undefined || end === undefined) throw new TypeError("Intl.PluralRules.prototype.selectRange: start and end are required");
        if (Number.isNaN(Number(start)) || Number.isNaN(Number(end))) throw new RangeError("Invalid argument: NaN in a range");
        if (pr.type === "ordinal") throw unsupported("Intl.PluralRules.prototype.selectRange", 'type "ordinal"');
        return "other";
      },
      resolvedOptions: (pr) => ({
        locale: pr.locale.tag, type: pr.type, ...digitOptions(pr.rule),
        pluralCategories: pr.type === "ordinal" ? ["few", "one", "two", "other"] : ["one", "other"],
        roundingIncrement: pr.rule.increment, roundingMode: pr.rule.mode, roundingPriority: pr.rule.priority, trailingZeroDisplay: pr.rule.trailing,
      }),
    },
  });

  // ---------------------------------------------------------------- DateTimeFormat data

  const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
  const WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
  const ERAS = { G: ["BC", "AD"], GGGG: ["Before Christ", "Anno Domini"], GGGGG: ["B", "A"] };

  // numericDate: the only date such a locale offers; hours24: the clock it uses by default.
  const DATE_LOCALES = {
    "en-US": { join: ", ", am: "AM", pm: "PM" },
    "en-GB": { join: ", ", hours24: true },
    "en-CA": { join: ", ", am: "a.m.", pm: "p.m.", numericDate: "y-MM-dd" },
    "sv-SE": { join: " ", hours24: true, numericDate: "y-MM-dd" },
    "de-DE": { join: ", ", hours24: true, numericDate: "d.M.y" },
    "fr-FR": { join: " ", hours24: true, numericDate: "dd/MM/y" },
  };
  const DATE_LOCALE_NAMES = Object.keys(DATE_LOCALES);

  // Zones whose English short names are not plain offsets. ":year" marks the first year from
  // which the zone has kept to its family; before it the name is not known here.
  const ZONE_FAMILIES = {
    E: ["E", "Eastern", -300], C: ["C", "Central", -360], M: ["M", "Mountain", -420], P: ["P", "Pacific", -480], A: ["A", "Atlantic", -240],
    K: ["AK", "Alaska", -540], H: ["H", "Hawaii-Aleutian", -600], h: ["HA", "Hawaii-Aleutian", -600],
  };
  const zoneTable = lazily(() => {
    const zones = new Map();
    const add = (family, prefix, names) => {
      for (const entry of names.split(" ")) {
        const [name, year] = entry.split(":");
        zones.set(prefix + name, { family, since: year ? Date.UTC(Number(year), 0, 1) : 0 });
      }
    };
    add("A", "America/", "Anguilla Antigua Aruba Barbados Blanc-Sablon Curacao Dominica Glace_Bay Goose_Bay Grenada Guadeloupe Halifax Kralendijk Lower_Princes Marigot Martinique Moncton Montserrat Port_of_Spain Puerto_Rico Santo_Domingo:2001 St_Barthelemy St_Kitts St_Lucia St_Thomas St_Vincent Thule Tortola Virgin");
    add("A", "", "Atlantic/Bermuda Canada/Atlantic");
    add("C", "America/", "Bahia_Banderas:2011 Belize Chicago Chihuahua:2023 Costa_Rica El_Salvador Guatemala Indiana/Knox:2007 Indiana/Tell_City:2007 Managua:1997 Matamoros Menominee:1974 Merida:1983 Mexico_City Monterrey North_Dakota/Beulah:2011 North_Dakota/Center:1993 North_Dakota/New_Salem:2004 Ojinaga:2023 Rankin_Inlet:2002 Regina Resolute:2008 Swift_Current:1973 Tegucigalpa Winnipeg Rainy_River Knox_IN:2007");
    add("C", "", "US/Central US/Indiana-Starke:2007 Canada/Central Canada/Saskatchewan CST6CDT Mexico/General");
    add("E", "America/", "Cancun:2016 Cayman Coral_Harbour Detroit Grand_Turk:2019 Indiana/Marengo:1975 Indiana/Petersburg:2008 Indiana/Vevay Indiana/Vincennes:2008 Indiana/Winamac:2008 Indianapolis Iqaluit:2001 Jamaica Kentucky/Monticello:2001 Louisville:1975 Nassau New_York Panama Port-au-Prince Toronto Indiana/Indianapolis Kentucky/Louisville:1975 Atikokan Fort_Wayne Montreal Thunder_Bay Nipigon Pangnirtung:2001");
    add("E", "", "US/East-Indiana US/Eastern US/Michigan Canada/Eastern EST EST5EDT Jamaica");
    add("M", "America/", "Boise Cambridge_Bay:2002 Ciudad_Juarez:2023 Creston Dawson_Creek:1973 Denver Edmonton Fort_Nelson:2016 Inuvik:1980 Phoenix Shiprock Yellowknife");
    add("M", "", "US/Arizona US/Mountain Canada/Mountain MST MST7MDT Navajo");
    add("P", "", "America/Los_Angeles America/Tijuana America/Vancouver US/Pacific Canada/Pacific PST8PDT America/Ensenada Mexico/BajaNorte");
    add("K", "", "America/Anchorage:1984 America/Juneau:1984 America/Metlakatla:2020 America/Nome:1984 America/Sitka:1984 America/Yakutat:1984 US/Alaska:1984");
    add("H", "", "Pacific/Honolulu US/Hawaii HST Pacific/Johnston");
    add("h", "", "America/Adak:1984 US/Aleutian:1984");
    add("offset", "", "America/Dawson:2021 America/Miquelon:1981 America/Whitehorse:2021 Canada/Yukon:2021");
    add("greenwich", "Africa/", "Abidjan Accra Bamako Banjul Bissau Conakry Dakar Freetown Lome Monrovia Nouakchott Ouagadougou Sao_Tome Timbuktu");
    add("greenwich", "", "America/Danmarkshavn Antarctica/Troll Atlantic/Reykjavik Atlantic/St_Helena Europe/Dublin Europe/Guernsey Europe/Isle_of_Man Europe/Jersey Europe/London GB Eire GB-Eire Iceland Europe/Belfast Greenwich Etc/Greenwich Etc/GMT0 Etc/GMT+0 Etc/GMT-0");
    return zones;
  });

  const UTC_NAMES = /^(?:utc|gmt|gmt0|uct|zulu|universal|etc\/(?:utc|gmt|uct|zulu|universal))$/i;

  const resolveZone = (name) => {
    if (name === undefined) return { name: "UTC", offset: 0, utc: true };
    const text = String(name);
    if (UTC_NAMES.test(text)) return { name: "UTC", offset: 0, utc: true };
    const match = /^([+-])([01]\d|2[0-3])(?::?([0-5]\d))?$/.exec(text);
    if (match) {
      const size = Number(match[2]) * 60 + Number(match[3] ?? 0);
      return { name: `${size ? match[1] : "+"}${match[2]}:${match[3] ?? "00"}`, offset: match[1] === "-" && size ? -size : size };
    }
    const known = host.zoneName(text);
    if (known === undefined) throw new RangeError(`Invalid time zone specified: ${text}`);
    return { name: known };
  };

  const zoneOffset = (zone, time) => zone.offset ?? host.zoneOffset(zone.name, time);

  const pad = (number, width = 2) => String(number).padStart(width, "0");

  const offsetName = (offset, long) => {
    const seconds = Math.round(Math.abs(offset) * 60);
    const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    return `GMT${offset < 0 ? "-" : "+"}${long ? pad(h) : h}${long || m || s ? ":" + pad(m) : ""}${s ? ":" + pad(s) : ""}`;
  };

  const zoneText = (dtf, time, offset) => {
    const { zone, zoneStyle } = dtf;
    const long = zoneStyle === "long";
    if (zoneStyle === "shortOffset") return offsetName(offset, false);
    if (zoneStyle === "longOffset") return offsetName(offset, true);
    if (zone.utc) return long ? "Coordinated Universal Time" : "UTC";
    const entry = zone.offset === undefined ? zoneTable().get(zone.name) : undefined;
    if (entry && time >= 0 && time < entry.since) 
      throw new RangeError(`Intl.DateTimeFormat: the name of the time zone "${zone.name}" before ${new Date(entry.since).getUTCFullYear()} is not available here; use timeZoneName "shortOffset"`);
    // CLDR dates its zone names from 1970 to the end of 9999; outside, they are offsets.
    const dated = time >= 0 && time < 253402300740000;
    const family = entry && ZONE_FAMILIES[entry.family];
    if (family && !dated) return offsetName(offset, long);
    if (family) {
      const summer = offset - family[2];
      if (summer === 0 || summer === 60) {
        const word = summer ? "Daylight" : "Standard";
        return long ? `${family[1]} ${word} Time` : `${family[0]}${word[0]}T`;
      }
    }
    if (long) throw new RangeError(`Intl.DateTimeFormat: the long name of the time zone "${zone.name}" is not available here; use timeZoneName "short" or "shortOffset"`);
    return entry?.family === "greenwich" && dated && offset === 0 ? "GMT" : offsetName(offset, false);
  };

  // ---------------------------------------------------------------- DateTimeFormat patterns

  const WIDTH = {
    weekday: { short: "E", long: "EEEE", narrow: "EEEEE" },
    era: { short: "G", long: "GGGG", narrow: "GGGGG" },
    year: { numeric: "y", "2-digit": "yy" },
    month: { numeric: "M", "2-digit": "MM", short: "MMM", long: "MMMM", narrow: "MMMMM" },
    day: { numeric: "d", "2-digit": "dd" },
  };
  const FIELD = { E: "weekday", G: "era", y: "year", M: "month", d: "day", B: "dayPeriod", h: "hour", H: "hour", K: "hour", k: "hour", m: "minute", s: "second", S: "fractionalSecond", a: "dayPeriod", z: "timeZoneName" };
  const LABEL = "Intl.DateTimeFormat";

  const oddFields = (fields) => unsupported(LABEL, `the combination ${Object.keys(fields).filter((key) => fields[key] !== undefined).map((key) => `${key}: "${fields[key]}"`).join(", ")}`);

  // Date skeletons as CLDR's English patterns order them; weekday and era wrap the core.
  const datePattern = (fields, locale) => {
    const { weekday, era, year, month, day } = fields;
    const british = locale === "en-GB";
    const named = month !== undefined && month !== "numeric" && month !== "2-digit";
    let key = (year ? "y" : "") + (month ? (named ? "L" : "M") : "") + (day ? "d" : "");
    const numericDate = DATE_LOCALES[locale].numericDate;
    if (numericDate) {
      if (key !== "yMd" || weekday || era || year !== "numeric") throw unsupported(LABEL, `anything but a plain numeric date and time for the locale "${locale}"`);
      if (numericDate !== "d.M.y") {
        if ((day === "numeric") !== (month === "numeric")) throw oddFields(fields);
        return numericDate;
      }
      return `${WIDTH.day[day]}.${WIDTH.month[month]}.y`;
    }
    const bothNumeric = month === "numeric" && day === "numeric";
    let core = (british
      ? { d: "d", M: "M", Md: "d/M", L: "M", Ld: "d M", y: "y", yM: "M/y", yMd: "d/M/y", yL: "M y", yLd: "d M y", yd: "y (day: d)" }
      : { d: "d", M: "M", Md: "M/d", L: "M", Ld: "M d", y: "y", yM: "M/y", yMd: "M/d/y", yL: "M y", yLd: "M d, y", yd: "y (day: d)" })[key] ?? "";
    if (key === "yd" && year === "2-digit" && day === "numeric") core = "d y";
    if (era) {
      if (!year && !(month && day) && !(weekday && day && !month)) {
        if (key || weekday) throw oddFields(fields);
        core = "G";
      } else if (key === "yd") throw oddFields(fields);
      else if (key !== "d") core += " G";
    }
    if (weekday) {
      if (month && day) core = (british && !year ? "E " : "E, ") + core;
      else if (key === "d") core = (british ? "E d" : "d E") + (era ? " G" : "");
      else if (key === "yd") core = british ? "E d y" : "d E y";
      else if (key === "") core = "E";
      else if (key === "y" && !era && weekday === "short" && year === "2-digit") core = "E y";
      else if (key === "M" && weekday === "short" && month === "2-digit") throw oddFields(fields);
      else if (key === "L" && !(month === "short" || weekday === "narrow" || weekday === "long" && month === "long")) throw oddFields(fields);
      else core += " E";
    }
    const widths = { E: WIDTH.weekday[weekday], G: WIDTH.era[era], y: WIDTH.year[year], M: WIDTH.month[month], d: WIDTH.day[day] };
    if (british && key.includes("M") && key !== "M") {
      const always = weekday ? !(era && year) : key === "yM" ? !era : era && year && day;
      if ((always || !weekday && day && bothNumeric) && !(key === "yM" && era)) {
        widths.M = "MM";
        if (day) widths.d = "dd";
      }
    }
    return core.replace(/\(day: d\)|[EGyMd]/g, (match) => (match.length > 1 ? `'(day: '${widths.d})` : widths[match]));
  };

  const timePattern = (fields, hourCycle, locale) => {
    const { hour, minute, second, fractionalSecondDigits: digits, dayPeriod, timeZoneName } = fields;
    const fraction = digits ? "S".repeat(digits) : "";
    const zone = timeZoneName ? " z" : "";
    let core;
    if (hour) {
      const half = hourCycle === "h12" || hourCycle === "h11";
      if (!minute && (second || digits)) throw oddFields(fields);
      const letter = { h11: "K", h12: "h", h23: "H", h24: "k" }[hourCycle];
      // Where the day has 24 hours by default, a numeric hour loses its usual two digits when
      // only the other fields are asked for with two.
      const { weekday, year, month, day } = fields;
      const dayClock = weekday && !year && !month && !day && !digits;
      const twoDigits = zone ? second : minute === "2-digit" && (second ? second === "2-digit" : !digits) && !dayClock;
      core = hour === "numeric" && (half || DATE_LOCALES[locale].hours24 && twoDigits) ? letter : letter + letter;
      if (minute) core += ":mm" + (second || digits ? ":ss" : "") + (digits ? "." + fraction : "");
      else if (!half && zone) core += "'h'";
      if (half) core += dayPeriod ? (zone ? "\u202f" : " ") + { short: "B", long: "BBBB", narrow: "BBBBB" }[dayPeriod] : "\u202fa";
      return core + zone;
    }
    if (dayPeriod) {
      if (minute || second || digits || zone) throw oddFields(fields);
      return { short: "B", long: "BBBB", narrow: "BBBBB" }[dayPeriod];
    }
    if (minute) core = second || digits ? "mm:ss" + (digits ? "." + fraction : "") : "m";
    else if (second) {
      if (digits && second === "2-digit" && digits !== 3) throw oddFields(fields);
      core = digits ? "s." + fraction : "s";
    } else core = fraction;
    return core ? core + zone : zone.trim();
  };

  const joinPatterns = (date, time, locale, fields) => {
    if (!date || !time) return date || time;
    const data = DATE_LOCALES[locale];
    if (data.numericDate) return date + data.join + time;
    if (/(?:^|[^M])MMMM(?:[^M]|$)/.test(date)) return `${date}' at '${time}`;
    const clock = fields.hour && !fields.timeZoneName && !fields.fractionalSecondDigits && (fields.minute || locale === "en-US" && /[hK]/.test(time));
    return date + (/^E+$/.test(date) && clock ? " " : ", ") + time;
  };

  const parsePattern = (pattern) => pattern.match(/([A-Za-z])\1*|'[^']*'|[^A-Za-z']+/g).reduce((tokens, text) => {
    if (/[A-Za-z]/.test(text[0])) tokens.push({ letter: text[0], width: text.length, code: text, type: FIELD[text[0]] });
    else {
      const literal = text[0] === "'" ? text.slice(1, -1) : text;
      const last = tokens[tokens.length - 1];
      if (last && last.type === "literal") last.text += literal;
      else tokens.push({ type: "literal", text: literal });
    }
    return tokens;
  }, []);

  const STYLES = ["full", "long", "medium", "short"];
  const DATE_STYLES = {
    "en-US": { full: "EEEE, MMMM d, y", long: "MMMM d, y", medium: "MMM d, y", short: "M/d/yy" },
    "en-GB": { full: "EEEE, d MMMM y", long: "d MMMM y", medium: "d MMM y", short: "dd/MM/y" },
    "en-CA": { short: "y-MM-dd" },
    "sv-SE": { short: "y-MM-dd" },
    "de-DE": { medium: "dd.MM.y", short: "dd.MM.yy" },
    "fr-FR": { short: "dd/MM/y" },
  };

  const DATE_FIELDS = ["weekday", "year", "month", "day"];
  const TIME_FIELDS = ["dayPeriod", "hour", "minute", "second", "fractionalSecondDigits"];

  const createDateTimeFormat = (locales, options, required = "any", defaults = "date") => {
    const locale = resolveLocale(LABEL, locales, DATE_LOCALE_NAMES);
    const data = DATE_LOCALES[locale.data];
    const read = optionReader(LABEL, options, true);
    onlyValue(read, LABEL, "calendar", "gregory");
    onlyValue(read, LABEL, "numberingSystem", "latn");
    const text3 = ["narrow", "short", "long"], digits2 = ["2-digit", "numeric"];
    const fields = {
      weekday: read("weekday", text3), era: read("era", text3), year: read("year", digits2),
      month: read("month", ["2-digit", "numeric", "narrow", "short", "long"]), day: read("day", digits2),
      dayPeriod: read("dayPeriod", text3), hour: read("hour", digits2), minute: read("minute", digits2), second: read("second", digits2),
      fractionalSecondDigits: read.number("fractionalSecondDigits", 1, 3),
      timeZoneName: read("timeZoneName", ["short", "long", "shortOffset", "longOffset", "shortGeneric", "longGeneric"]),
    };
    if (/Generic$/.test(fields.timeZoneName)) throw unsupported(LABEL, `timeZoneName "${fields.timeZoneName}"`);
    read("formatMatcher", ["basic", "best fit"]);
    const dateStyle = read("dateStyle", STYLES), timeStyle = read("timeStyle", STYLES);
    const hour12 = read("hour12", Boolean), cycle = read("hourCycle", ["h11", "h12", "h23", "h24"]);
    const dtf = { locale, data, zone: resolveZone(read.raw("timeZone")), dateStyle, timeStyle };

    let hourCycle = cycle ?? (data.hours24 ? "h23" : "h12");
    if (hour12 !== undefined) hourCycle = data.hours24 ? (hour12 ? "h11" : "h23") : hour12 ? "h12" : "h24";
    const checkClock = () => {
      if (data.hours24 ? hourCycle !== "h23" : locale.data !== "en-US" && hourCycle !== "h12")
        throw unsupported(LABEL, `the clock ${hour12 !== undefined ? `hour12: ${hour12}` : `"${hourCycle}"`} for the locale "${locale.tag}"`);
    };

    if (dateStyle !== undefined || timeStyle !== undefined) {
      for (const key of Object.keys(fields)) if (fields[key] !== undefined) throw new TypeError(`Can't set option ${key} when ${dateStyle !== undefined ? "dateStyle" : "timeStyle"} is used`);
      if (required === "date" && timeStyle !== undefined) throw new TypeError("Invalid option : timeStyle");
      if (required === "time" && dateStyle !== undefined) throw new TypeError("Invalid option : dateStyle");
      const date = dateStyle && DATE_STYLES[locale.data][dateStyle];
      if (dateStyle && !date) throw unsupported(LABEL, `dateStyle "${dateStyle}" for the locale "${locale.tag}"`);
      let time = "";
      if (timeStyle) {
        checkClock();
        if (timeStyle === "full" && data.numericDate) throw unsupported(LABEL, `timeStyle "full" for the locale "${locale.tag}"`);
        time = timePattern({ hour: "numeric", minute: "numeric", second: timeStyle === "short" ? undefined : "numeric" }, hourCycle, locale.data);
        if (timeStyle === "full" || timeStyle === "long") {
          time += " z";
          dtf.zoneStyle = timeStyle === "full" ? "long" : "short";
        }
        dtf.hourCycle = hourCycle;
      }
      dtf.pattern = date && time ? date + (dateStyle === "full" || dateStyle === "long" ? "' at '" : data.join) + time : date || time;
      dtf.datePattern = date;
      dtf.timePattern = time;
    } else {
      const has = (names) => names.some((name) => fields[name] !== undefined);
      const needed = (required === "time" || !has(DATE_FIELDS)) && (required === "date" || !has(TIME_FIELDS));
      if (needed && defaults !== "time") fields.year = fields.month = fields.day = "numeric";
      if (needed && defaults !== "date") fields.hour = fields.minute = fields.second = "numeric";
      if (fields.hour) {
        checkClock();
        dtf.hourCycle = hourCycle;
      }
      if (data.numericDate && fields.hour && !fields.minute) throw unsupported(LABEL, `an hour without minutes for the locale "${locale.tag}"`);
      if (locale.data !== "en-US" && (fields.dayPeriod || fields.fractionalSecondDigits && (data.numericDate || fields.timeZoneName)
        || data.hours24 && fields.hour === "numeric" && fields.second && /Offset/.test(fields.timeZoneName))) throw oddFields(fields);
      dtf.zoneStyle = fields.timeZoneName;
      const hasDate = has(DATE_FIELDS) || fields.era;
      const date = hasDate ? datePattern(fields, locale.data) : "";
      const time = timePattern(fields, hourCycle, locale.data);
      dtf.pattern = joinPatterns(date, time, locale.data, fields);
      dtf.datePattern = date;
      dtf.timePattern = time;
    }
    if (dtf.zoneStyle && locale.data !== "en-US" && (data.numericDate ? !dtf.zone.utc || dtf.zoneStyle !== "short" : /^(?:short|long)$/.test(dtf.zoneStyle) && !dtf.zone.utc)) throw unsupported(LABEL, `the ${locale.tag} name of the time zone "${dtf.zone.name}"`);
    dtf.tokens = parsePattern(dtf.pattern);
    return dtf;
  };

  // ---------------------------------------------------------------- DateTimeFormat output

  const toTime = (date) => {
    const time = date === undefined ? Date.now() : typeof date === "number" ? date : Number(date);
    if (!(Math.abs(time) <= 8.64e15)) throw new RangeError("Invalid time value");
    return Math.trunc(time) + 0;
  };

  const DAY = 86400000;

  const breakDown = (dtf, time) => {
    const offset = zoneOffset(dtf.zone, time);
    const local = time + offset * 60000;
    const days = Math.floor(local / DAY), rest = local - days * DAY;
    // Days to civil date by 400-year cycles, starting the year in March.
    const shifted = days + 719468, cycle = Math.floor(shifted / 146097), inCycle = shifted - cycle * 146097;
    const yearOfCycle = Math.floor((inCycle - Math.floor(inCycle / 1460) + Math.floor(inCycle / 36524) - Math.floor(inCycle / 146096)) / 365);
    const dayOfYear = inCycle - (365 * yearOfCycle + Math.floor(yearOfCycle / 4) - Math.floor(yearOfCycle / 100));
    const march = Math.floor((5 * dayOfYear + 2) / 153), month = march < 10 ? march + 2 : march - 10;
    const year = yearOfCycle + cycle * 400 + (month <= 1 ? 1 : 0);
    return {
      time, offset, days, year, month, day: dayOfYear - Math.floor((153 * march + 2) / 5) + 1, weekday: ((days + 4) % 7 + 7) % 7,
      hour: Math.floor(rest / 3600000), minute: Math.floor(rest / 60000) % 60, second: Math.floor(rest / 1000) % 60, ms: Math.floor(rest % 1000),
    };
  };

  const dayPeriodText = (at, dtf, width) => {
    const exact = (letter, value) => !dtf.pattern.includes(letter) || value === 0;
    if (at.hour === 12 && exact("m", at.minute) && exact("s", at.second)) return width === 5 ? "n" : "noon";
    return at.hour < 12 ? "in the morning" : at.hour < 18 ? "in the afternoon" : at.hour < 21 ? "in the evening" : "at night";
  };

  const fieldText = (dtf, token, at) => {
    const { width } = token;
    switch (token.letter) {
      case "y": {
        const year = at.year > 0 ? at.year : 1 - at.year;
        return width === 2 ? pad(year % 100) : String(year);
      }
      case "M":
        if (width <= 2) return pad(at.month + 1, width);
        if (width === 3) return dtf.locale.data === "en-GB" && at.month === 8 ? "Sept" : MONTHS[at.month].slice(0, 3);
        return width === 4 ? MONTHS[at.month] : MONTHS[at.month][0];
      case "d": return pad(at.day, width);
      case "E": return width === 4 ? WEEKDAYS[at.weekday] : WEEKDAYS[at.weekday].slice(0, width === 5 ? 1 : 3);
      case "G": return ERAS[token.code][at.year > 0 ? 1 : 0];
      case "h": return pad(at.hour % 12 || 12, width);
      case "K": return pad(at.hour % 12, width);
      case "H": return pad(at.hour, width);
      case "k": return pad(at.hour || 24, width);
      case "m": return pad(at.minute, width);
      case "s": return pad(at.second, width);
      case "S": return pad(at.ms, 3).slice(0, width);
      case "a": return at.hour < 12 ? dtf.data.am : dtf.data.pm;
      case "B": return dayPeriodText(at, dtf, width);
      default: return zoneText(dtf, at.time, at.offset);
    }
  };

  // format() separates AM/PM by a plain space while parts and ranges keep CLDR's narrow
  // no-break space: engines do so because programs match the former.
  const formatDate = (dtf, date) => {
    const at = breakDown(dtf, toTime(date));
    let text = "";
    for (const token of dtf.tokens) text += token.type === "literal" ? token.text : fieldText(dtf, token, at);
    return text.replace("\u202f", " ");
  };

  const tokenParts = (dtf, tokens, at, source) => tokens.map((token) => ({
    type: token.type, value: token.type === "literal" ? token.text : fieldText(dtf, token, at), ...(source && { source }),
  }));

  const DASH = "\u2009–\u2009";

  const dateRange = (dtf, start, end) => {
    if (start === undefined || end === undefined) throw new TypeError("startDate or endDate cannot be undefined");
    const a = breakDown(dtf, toTime(start)), b = breakDown(dtf, toTime(end));
    const label = `${LABEL}.prototype.formatRange`;
    if (dtf.locale.data !== "en-US" || /[GSBkK]|'\(/.test(dtf.pattern) || /yy/.test(dtf.pattern) && dtf.dateStyle !== "short") throw unsupported(label, `this format ("${dtf.pattern}")`);
    const { datePattern: date = "" } = dtf, time = (dtf.timePattern ?? "").replace("hh", "h");
    const differs = a.year !== b.year ? "y" : a.month !== b.month ? "M" : a.day !== b.day ? "d" : (a.hour < 12) !== (b.hour < 12) ? "a" : a.hour !== b.hour ? "h" : a.minute !== b.minute ? "m" : a.second !== b.second ? "s" : "";
    const sameDay = !"yMd".includes(differs) || differs === "";
    const smallest = time ? (/s/.test(time) ? 3 : /m/.test(time) ? 2 : 1) : 0;
    const depth = { y: -3, M: -2, d: -1, a: 1, h: 1, m: 2, s: 3, "": 9 }[differs];
    const dateDepth = /[dE]/.test(date) ? -1 : /M/.test(date) ? -2 : date ? -3 : 0;
    if (depth > (time ? smallest : dateDepth)) return { same: true, parts: tokenParts(dtf, dtf.tokens, a, "shared") };
    const split = (lead, first, last, tail) => ({ parts: [
      ...(lead ? tokenParts(dtf, parsePattern(lead), a, "shared") : []), ...tokenParts(dtf, parsePattern(first), a, "startRange"),
      { type: "literal", value: DASH, source: "shared" },
      ...tokenParts(dtf, parsePattern(last), b, "endRange"), ...(tail ? tokenParts(dtf, parsePattern(tail), b, "shared") : []),
    ] });
    const whole = (pattern) => split("", pattern, pattern, "");
    if (/dd|MM\/|(?:^|[^M])MM(?:[^M]|$)|MMMMM|EEEEE/.test(date) || time && !/^(?:h+|HH)(?::mm(?::ss)?)?(?:\u202fa)?$/.test(time)) throw unsupported(label, `this format ("${dtf.pattern}")`);
    const named = /^(E+, )?(MMMM?) d(, y)?$/.exec(date);
    const numeric = /^(E+, )?M\/d(\/yy?)?$/.exec(date);
    if (time && !sameDay) {
      if (date && !named && !numeric) throw unsupported(label, `this format ("${dtf.pattern}")`);
      let full = date || "M/d/y";
      if (differs === "y" && !/y/.test(full) && !/s/.test(time)) full += named ? ", y" : "/y";
      return whole(full + (/MMMM/.test(full) ? "' at '" : ", ") + time);
    }
    if (time) {
      if (date && !named && !numeric) throw unsupported(label, `this format ("${dtf.pattern}")`);
      const lead = date && date + ", ";
      if (differs !== "a" && !/s/.test(time) && /^h/.test(time)) return split(lead, time.replace("\u202fa", ""), time.replace("\u202fa", ""), "\u202fa");
      return split(lead, time, time, "");
    }
    if (named) {
      const [, weekday = "", month, year = ""] = named;
      if (differs === "y") return whole(date + (year ? "" : ", y"));
      if (differs === "M" || weekday) return split("", `${weekday}${month} d`, `${weekday}${month} d`, year);
      return split(`${month} `, "d", "d", year);
    }
    if (numeric) return whole(date + (differs === "y" && !numeric[2] ? "/y" : ""));
    if (/^MMMM? y$/.test(date)) return differs === "y" ? whole(date) : split("", date.slice(0, -2), date.slice(0, -2), " y");
    if (/^(?:M\/y|y|MMMM?|E|EEEE)$/.test(date)) return whole(date);
    throw unsupported(label, `this format ("${dtf.pattern}")`);
  };

  const dateOptions = (dtf) => {
    const options = { locale: dtf.locale.tag, calendar: "gregory", numberingSystem: "latn", timeZone: dtf.zone.name };
    if (dtf.hourCycle) Object.assign(options, { hourCycle: dtf.hourCycle, hour12: dtf.hourCycle === "h11" || dtf.hourCycle === "h12" });
    if (!dtf.dateStyle && !dtf.timeStyle) {
      const found = {};
      for (const token of dtf.tokens) {
        if (token.type === "literal" || token.letter === "a") continue;
        const { letter, width } = token;
        if (letter === "S") found.fractionalSecondDigits = width;
        else if (letter === "z") found.timeZoneName = dtf.zoneStyle;
        else if ("EGB".includes(letter)) found[token.type] = width === 4 ? "long" : width === 5 ? "narrow" : "short";
        else found[token.type] = ["numeric", "2-digit", "short", "long", "narrow"][width - 1];
      }
      for (const key of ["weekday", "era", "year", "month", "day", ...TIME_FIELDS, "timeZoneName"]) if (found[key] !== undefined) options[key] = found[key];
    }
    if (dtf.dateStyle) options.dateStyle = dtf.dateStyle;
    if (dtf.timeStyle) options.timeStyle = dtf.timeStyle;
    return options;
  };

  service("DateTimeFormat", {
    allowed: DATE_LOCALE_NAMES, callable: true, create: (locales, options) => createDateTimeFormat(locales, options),
    getters: { format: (dtf) => anonymous(1, (date) => formatDate(dtf, date)) },
    methods: {
      formatToParts: (dtf, date) => tokenParts(dtf, dtf.tokens, breakDown(dtf, toTime(date))),
      formatRange(dtf, start, end) {
        const { same, parts } = dateRange(dtf, start, end);
        return same ? formatDate(dtf, start) : parts.map((part) => part.value).join("");
      },
      formatRangeToParts: (dtf, start, end) => dateRange(dtf, start, end).parts,
      resolvedOptions: (dtf) => dateOptions(dtf),
    },
  });

  // ---------------------------------------------------------------- Collator

  // Languages whose collation is CLDR's root order.
  const ROOT_ORDER = ["en-US", "en-GB", "en-CA", "en-IN", "de-DE", "fr-FR"];
  const STRENGTH = { base: 1, accent: 2, case: 3, variant: 4 };

  const createCollator = (locales, options, label = "Intl.Collator") => {
    const locale = resolveLocale(label, locales, ROOT_ORDER);
    const read = optionReader(label, options, true);
    const usage = read("usage", ["sort", "search"], "sort");
    onlyValue(read, label, "collation", "default");
    const numeric = read("numeric", Boolean, false);
    const caseFirst = read("caseFirst", ["upper", "lower", "false"], "false");
    const sensitivity = read("sensitivity", Object.keys(STRENGTH), "variant");
    const ignorePunctuation = read("ignorePunctuation", Boolean, false);
    return {
      locale, usage, sensitivity, ignorePunctuation, numeric, caseFirst, strength: STRENGTH[sensitivity],
      flags: (numeric ? 1 : 0) | (ignorePunctuation ? 2 : 0) | (caseFirst === "upper" ? 4 : caseFirst === "lower" ? 8 : 0),
    };
  };

  const collate = (collator, x, y) => {
    const a = String(x), b = String(y);
    return a === b ? 0 : host.compare(a, b, collator.strength, collator.flags);
  };

  service("Collator", {
    allowed: ROOT_ORDER, callable: true, create: (locales, options) => createCollator(locales, options),
    getters: { compare: (collator) => anonymous(2, (x, y) => collate(collator, x, y)) },
    methods: {
      resolvedOptions: ({ locale, usage, sensitivity, ignorePunctuation, numeric, caseFirst }) =>
        ({ locale: locale.tag, usage, sensitivity, ignorePunctuation, collation: "default", numeric, caseFirst }),
    },
  });

  // ---------------------------------------------------------------- RelativeTimeFormat

  const RELATIVE_UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];
  const RELATIVE_SHORT = { second: "sec.", minute: "min.", hour: "hr.", week: "wk.", month: "mo.", quarter: "qtr.", year: "yr." };
  const RELATIVE_NARROW = { second: "s", minute: "m", hour: "h", day: "d", week: "w", month: "mo", quarter: "q", year: "y" };
  const defaultNumbers = lazily(() => createNumberFormat(undefined, undefined));

  const relativeName = (rtf, unit) => {
    if (unit === "second") return { 0: "now" };
    if (unit === "day") return { 0: "today", 1: "tomorrow", "-1": "yesterday" };
    const name = rtf.style !== "long" && unit !== "minute" && unit !== "hour" ? RELATIVE_SHORT[unit] : unit;
    return unit === "minute" || unit === "hour" ? { 0: `this ${name}` } : { 0: `this ${name}`, 1: `next ${name}`, "-1": `last ${name}` };
  };

  const relativeParts = (rtf, amount, unitName) => {
    const value = Number(amount);
    const unit = String(unitName).replace(/s$/, "");
    if (!RELATIVE_UNITS.includes(unit)) throw new RangeError(`Invalid unit argument for Intl.RelativeTimeFormat.prototype.format() '${String(unitName)}'`);
    if (!Number.isFinite(value)) throw new RangeError("Value need to be finite number for Intl.RelativeTimeFormat.prototype.format()");
    const word = rtf.numeric === "auto" ? relativeName(rtf, unit)[Math.trunc(value * 100 + Math.sign(value) / 2) / 100] : undefined;
    if (word !== undefined) return [{ type: "literal", value: word }];
    const past = value < 0 || Object.is(value, -0);
    const number = toParts(numberParts(defaultNumbers(), Math.abs(value)));
    const one = number.length === 1 && number[0].value === "1";
    const name = rtf.style === "narrow" ? RELATIVE_NARROW[unit]
      : " " + (rtf.style === "long" || unit === "day" ? unit + (one ? "" : "s") : unit === "quarter" && !one ? "qtrs." : RELATIVE_SHORT[unit]);
    for (const part of number) part.unit = unit;
    return [...(past ? [] : [{ type: "literal", value: "in " }]), ...number, { type: "literal", value: name + (past ? " ago" : "") }];
  };

  service("RelativeTimeFormat", {
    allowed: ["en-US"],
    create(locales, options) {
      const label = "Intl.RelativeTimeFormat";
      const locale = resolveLocale(label, locales, ["en-US"]);
      const read = optionReader(label, options, true);
      onlyValue(read, label, "numberingSystem", "latn");
      return { locale, style: read("style", ["long", "short", "narrow"], "long"), numeric: read("numeric", ["always", "auto"], "always") };
    },
    methods: {
      format: (rtf, value, unit) => relativeParts(rtf, value, unit).map((part) => part.value).join(""),
      formatToParts: (rtf, value, unit) => relativeParts(rtf, value, unit),
      resolvedOptions: ({ locale, style, numeric }) => ({ locale: locale.tag, style, numeric, numberingSystem: "latn" }),
    },
  });

  // ---------------------------------------------------------------- ListFormat

  const LIST_LOCALES = ["en-US", "en-GB"];

  const listParts = ({ locale, type, style }, list) => {
    const items = [];
    if (list !== undefined) for (const item of list) {
      if (typeof item !== "string") throw new TypeError(`Iterable yielded ${String(item)} which is not a string`);
      items.push(item);
    }
    const british = locale.data === "en-GB";
    const word = type === "disjunction" ? "or" : type === "unit" || style === "narrow" ? "" : style === "short" && !british ? "&" : "and";
    const comma = type === "unit" && style === "narrow" ? " " : ", ";
    const parts = [];
    items.forEach((value, index) => {
      if (index) {
        const final = index === items.length - 1 && word;
        parts.push({ type: "literal", value: !final ? comma : items.length === 2 || british ? ` ${word} ` : `, ${word} ` });
      }
      parts.push({ type: "element", value });
    });
    return parts;
  };

  service("ListFormat", {
    allowed: LIST_LOCALES,
    create(locales, options) {
      const locale = resolveLocale("Intl.ListFormat", locales, LIST_LOCALES);
      const read = optionReader("Intl.ListFormat", options, false);
      return { locale, type: read("type", ["conjunction", "disjunction", "unit"], "conjunction"), style: read("style", ["long", "short", "narrow"], "long") };
    },
    methods: {
      format: (lf, list) => listParts(lf, list).map((part) => part.value).join(""),
      formatToParts: (lf, list) => listParts(lf, list),
      resolvedOptions: ({ locale, type, style }) => ({ locale: locale.tag, type, style }),
    },
  });

  // ---------------------------------------------------------------- Segmenter

  const EXTEND = "[\\p{Grapheme_Extend}\\p{Emoji_Modifier}\\p{Mc}\\u200d]";
  const graphemes = lazily(() => new RegExp(
    "\\r\\n|[\\p{Cc}\\p{Zl}\\p{Zp}]" +
    "|(?:\\p{Regional_Indicator}{2}" +
    "|[\\u1100-\\u115f\\ua960-\\ua97c]*(?:[\\uac00-\\ud7a3][\\u1160-\\u11a7\\ud7b0-\\ud7c6]*|[\\u1160-\\u11a7\\ud7b0-\\ud7c6]+)[\\u11a8-\\u11ff\\ud7cb-\\ud7fb]*" +
    "|[\\u1100-\\u115f\\ua960-\\ua97c]+|[\\u11a8-\\u11ff\\ud7cb-\\ud7fb]+" +
    "|\\p{Extended_Pictographic}(?:[\\p{Grapheme_Extend}\\p{Emoji_Modifier}]*\\u200d\\p{Extended_Pictographic})*" +
    `|[^\\p{Cc}\\p{Zl}\\p{Zp}])${EXTEND}*`, "gsu"));
  // Scripts with conjuncts, prepended or spacing marks of their own need rules not kept here.
  const HARD_GRAPHEMES = /[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0900-\u109f\u1700-\u1cff\ua800-\uabff\u{10a00}-\u{11fff}\u{16100}-\u{16d7f}\u{e0000}-\u{e001f}\u{e0080}-\u{e00ff}\u{e01f0}-\u{e0fff}\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\u00ad\u061c\u180e\u0e33\u0eb3]/u;
  // Word boundaries are kept only for scripts that separate words by spaces.
  const PLAIN_WORDS = /^[\t\n\r -~\u00a0-\u00ac\u00ae-\u024f\u0370-\u03ff\u0400-\u04ff\u1e00-\u1eff\u2010-\u2015\u2018-\u201f\u2026\u20a0-\u20bf]*$/u;
  const words = lazily(() => new RegExp("\\r\\n| +|(?:[\\p{L}\\p{Nd}_]|(?<=\\p{L})['.\\u2018\\u2019\\u00b7:\\u0387](?=\\p{L})|(?<=\\p{Nd})['.,;\\u2018\\u2019\\u037e](?=\\p{Nd}))+|.", "gsu"));

  const segmentsOf = (granularity, string) => {
    const label = "Intl.Segmenter";
    if (granularity === "word" ? !PLAIN_WORDS.test(string) : HARD_GRAPHEMES.test(string)) throw unsupported(label, `granularity "${granularity}" for the script of this text`);
    const segments = [];
    let index = 0;
    for (const segment of string.match(granularity === "word" ? words() : graphemes()) ?? []) {
      segments.push({ segment, index, input: string, ...(granularity === "word" && { isWordLike: /[\p{L}\p{Nd}]|__/u.test(segment) }) });
      index += segment.length;
    }
    return segments;
  };

  const segmentState = new WeakMap();
  const segmentsPrototype = {};
  hide(segmentsPrototype, "containing", method("containing", 1, (self, [at]) => {
    const index = Math.trunc(Number(at)) || 0;
    const found = segmentState.get(self).find((data) => index >= data.index && index < data.index + data.segment.length);
    return found && { ...found };
  }));
  hide(segmentsPrototype, Symbol.iterator, { *[Symbol.iterator]() {
    for (const data of segmentState.get(this)) yield { ...data };
  } }[Symbol.iterator]);

  service("Segmenter", {
    allowed: ROOT_ORDER,
    create(locales, options) {
      const locale = resolveLocale("Intl.Segmenter", locales, ROOT_ORDER);
      const granularity = optionReader("Intl.Segmenter", options, false)("granularity", ["grapheme", "word", "sentence"], "grapheme");
      if (granularity === "sentence") throw unsupported("Intl.Segmenter", 'granularity "sentence"');
      return { locale, granularity };
    },
    methods: {
      segment(segmenter, string) {
        const segments = Object.create(segmentsPrototype);
        segmentState.set(segments, segmentsOf(segmenter.granularity, String(string)));
        return segments;
      },
      resolvedOptions: ({ locale, granularity }) => ({ locale: locale.tag, granularity }),
    },
  });

  // ---------------------------------------------------------------- installation

  hide(Intl, "getCanonicalLocales", method("getCanonicalLocales", 1, (_, [locales]) => canonicalList(locales)));
  hide(globalThis, "Intl", Intl);

  const install = (prototype, name, length, body) => hide(prototype, name, method(name, length, body));

  const numberToLocale = (value, [locales, options]) =>
    formatNumber(locales === undefined && options === undefined ? defaultNumbers() : createNumberFormat(locales, options), value);
  const { valueOf: numberValue } = Number.prototype, { valueOf: bigintValue } = BigInt.prototype, { getTime } = Date.prototype;
  install(Number.prototype, "toLocaleString", 0, (self, args) => numberToLocale(typeof self === "number" ? self : numberValue.call(self), args));
  install(BigInt.prototype, "toLocaleString", 0, (self, args) => numberToLocale(typeof self === "bigint" ? self : bigintValue.call(self), args));

  for (const [name, required, defaults] of [["toLocaleString", "any", "all"], ["toLocaleDateString", "date", "date"], ["toLocaleTimeString", "time", "time"]]) {
    const standard = lazily(() => createDateTimeFormat(undefined, undefined, required, defaults));
    install(Date.prototype, name, 0, (self, [locales, options]) => {
      const time = getTime.call(self);
      const dtf = locales === undefined && options === undefined ? standard() : createDateTimeFormat(locales, options, required, defaults);
      return Number.isNaN(time) ? "Invalid Date" : formatDate(dtf, time);
    });
  }

  const joinLocale = (self, args) => {
    const texts = [];
    for (let i = 0; i < self.length; i++) {
      const element = self[i];
      texts.push(element === undefined || element === null ? "" : String(element.toLocaleString(...args)));
    }
    return texts.join(",");
  };
  const active = new Set();
  install(Array.prototype, "toLocaleString", 0, (self, args) => {
    const array = Object(self);
    if (active.has(array)) return "";
    active.add(array);
    try {
      return joinLocale(array, args.slice(0, 2));
    } finally {
      active.delete(array);
    }
  });
  const TypedArray = Object.getPrototypeOf(Uint8Array.prototype);
  const typedLength = Object.getOwnPropertyDescriptor(TypedArray, "length").get;
  install(TypedArray, "toLocaleString", 0, (self, args) => {
    typedLength.call(self);
    return joinLocale(self, args.slice(0, 2));
  });

  const requireString = (self, name) => {
    if (self === undefined || self === null) throw new TypeError(`String.prototype.${name} called on null or undefined`);
    return String(self);
  };
  // Not through `install`: the argument list it gathers would cost more than the comparison's own work.
  hide(String.prototype, "localeCompare", Object.defineProperty({ localeCompare(that, locales, options) {
    const a = typeof this === "string" ? this : requireString(this, "localeCompare");
    const b = typeof that === "string" ? that : String(that);
    if (locales === undefined && options === undefined) return a === b ? 0 : host.compare(a, b, 4, 0);
    return collate(createCollator(locales, options, "String.prototype.localeCompare"), a, b);
  } }.localeCompare, "length", { value: 1 }));
  for (const [name, convert] of [["toLocaleUpperCase", String.prototype.toUpperCase], ["toLocaleLowerCase", String.prototype.toLowerCase]])
    install(String.prototype, name, 0, (self, [locales]) => {
      const string = requireString(self, name);
      const [tag = "en"] = canonicalList(locales);
      if (/^(?:tr|az|lt|el|hy)(?:-|$)/.test(tag)) throw unsupported(`String.prototype.${name}`, `the locale "${tag}"`);
      return convert.call(string);
    });
})
