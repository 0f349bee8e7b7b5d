// What the page is about, and how its parts are made: by text, never by markup.

const DATA = JSON.parse(document.getElementById("data").textContent);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
