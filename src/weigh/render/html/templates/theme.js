// Light or dark: the system's choice until the reader makes one.

const root = document.documentElement;
const redraws = [];

function remembered() {
  try {
    return localStorage.getItem("weigh-theme");
  } catch {
    return null; // a browser may keep nothing for a page from disk
  }
}

function remember(theme) {
  try {
    if (theme === "auto") localStorage.removeItem("weigh-theme");
    else localStorage.setItem("weigh-theme", theme);
  } catch {
    // as above: the choice lasts as long as the page
  }
}

function wear(theme) {
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  redraws.forEach((redraw) => redraw());
}

const button = document.getElementById("theme");
const THEMES = ["auto", "light", "dark"];
let chosen = THEMES.includes(remembered()) ? remembered() : "auto";

function nameTheme() {
  button.textContent = `Theme: ${chosen}`;
}

button.addEventListener("click", () => {
  chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
  remember(chosen);
  wear(chosen);
  nameTheme();
});
nameTheme();
button.hidden = false;
wear(chosen);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  redraws.forEach((redraw) => redraw());
});

function colour(name) {
  return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
}
