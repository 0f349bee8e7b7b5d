// Figures in the words that weigh's own text uses: the same rounding, half to even.

const PREFIXES = "KMGTP";
const ABSENT = "-";

// A tie of the last digit has an odd numerator over a power of two.
function fixed(value, digits) {
  const numerator = value * 2 ** (digits + 1);
  if (!Number.isInteger(numerator) || numerator % 2 === 0) return value.toFixed(digits);
  const below = Math.floor(value * 10 ** digits);
  const even = below % 2 === 0 ? below : below + 1;
  return (even / 10 ** digits).toFixed(digits);
}

function whole(value) {
  return Number(fixed(value, 0));
}

function threeDigits(value) {
  if (value >= 99.95) return String(whole(value));
  return value >= 9.995 ? fixed(value, 1) : fixed(value, 2);
}

function sizeWords(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  let scaled = bytes / 1024;
  let power = 0;
  while (whole(scaled) >= 1024 && power < PREFIXES.length - 1) {
    scaled /= 1024;
    power += 1;
  }
  return `${threeDigits(scaled)} ${PREFIXES[power]}iB`;
}

function two(number) {
  return String(number).padStart(2, "0");
}

function timeWords(seconds) {
  if (seconds < 60 - 0.05) return `${threeDigits(seconds)} s`;
  const all = whole(seconds);
  if (all < 3600) return `${Math.floor(all / 60)} m ${two(all % 60)} s`;
  const minutes = whole(seconds / 60);
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} m`;
  const hours = whole(seconds / 3600);
  if (hours > 1000 * 366 * 24) return "over 1000 years";
  return `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
}

function cpuWords(cpus) {
  return Number.isInteger(cpus) ? String(cpus) : threeDigits(cpus);
}

function write(value, kind) {
  if (value === null || value === undefined || value === "") return ABSENT;
  switch (kind) {
    case "bytes": return sizeWords(value);
    case "seconds": return timeWords(value);
    case "cpus": return cpuWords(value);
    case "share": return `${fixed(value * 100, 0)} %`;
    default: return String(value);
  }
}

// A label of the time axis: no longer than it must be.
function axisTime(seconds) {
  if (seconds === 0) return "0";
  if (seconds < 60) return `${Number(seconds.toFixed(3))} s`;
  const all = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  if (hours) return minutes || rest ? `${hours} h ${two(minutes)}` : `${hours} h`;
  return rest ? `${minutes} m ${two(rest)}` : `${minutes} m`;
}

function axisSize(bytes) {
  return bytes === 0 ? "0" : sizeWords(bytes).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}

// What a person types: 4GiB, 90m, 50%, 0.5.
const FACTORS = {
  k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4, p: 1024 ** 5,
};
const SECONDS = { "": 1, s: 1, m: 60, h: 3600, d: 86400 };

function read(text, kind) {
  const match = /^([0-9]*\.?[0-9]+)\s*([a-z%]*)$/i.exec(text.trim());
  if (!match) return null;
  const number = Number(match[1]);
  const unit = match[2].toLowerCase();
  if (kind === "bytes") {
    const factor = unit.replace(/i?b$/, "");
    return factor === "" ? number : factor in FACTORS ? number * FACTORS[factor] : null;
  }
  if (kind === "seconds") return unit in SECONDS ? number * SECONDS[unit] : null;
  if (kind === "share") return unit === "%" || number > 1 ? number / 100 : number;
  return unit === "" ? number : null;
}
