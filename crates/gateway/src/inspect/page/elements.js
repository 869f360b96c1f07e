// Makes elements. Texts become text nodes, never markup: programs and answers are written by strangers.
export const h = (tag, properties, ...children) => {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

// Replaces what an element holds.
export const fill = (element, ...children) => {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

export const button = (label, onclick, properties) => h("button", { type: "button", onclick, ...properties }, label);

// Says something to those who cannot see it change.
export const announce = (text) => {
  const region = document.getElementById("announcements");
  if (region) region.textContent = text;
};
