// Looks at pages in headless Chromium, wide and narrow, light and dark, and as printed:
//
//   node check.mjs OUT PAGE.html…
//
// Screenshots go to the folder OUT. It fails if a page is 2 MB or larger, asks for anything, writes
// to the console, is wider than the window, is not clean for axe, or if something that the pointer
// tells the keyboard cannot: every chart has a slider that Tab reaches, and every value of it a text.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(fs.existsSync);
const windows = [["wide", 1280, 1390], ["narrow", 390, 844]];
const themes = ["light", "dark"];
const maxBytes = 2_000_000;

const [out, ...files] = process.argv.slice(2);
fs.mkdirSync(out, { recursive: true });
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox"] });
const rows = [], faults = [];
for (const file of files) {
  const name = path.basename(file, ".html"), bytes = fs.statSync(file).size;
  if (bytes >= maxBytes) faults.push(`${name}: ${bytes} bytes, want less than ${maxBytes}`);
  for (const [width, w, h] of windows) {
    for (const theme of themes) {
      rows.push(await look(file, `${name}-${width}-${theme}`, w, h, theme));
      rows.at(-1).bytes = bytes;
    }
  }
  await print(file, name);
}
await browser.close();
console.table(rows);
for (const fault of faults) console.error(fault);
process.exit(faults.length > 0 ? 1 : 0);

// look opens a page and returns what it is like.
async function look(file, name, width, height, theme) {
  const page = await browser.newPage();
  const fault = (text) => faults.push(`${name}: ${text}`);
  let requests = 0, messages = 0;
  page.on("request", (r) => { if (r.url() !== pathToFileURL(file).href && !r.url().startsWith("data:")) { requests++; fault(`asks for ${r.url()}`); } });
  page.on("console", (m) => { messages++; fault(`console: ${m.text()}`); });
  page.on("pageerror", (e) => { messages++; fault(`error: ${e.message}`); });
  await page.setBypassCSP(true); // for axe alone: the page's own policy is on while it loads below
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  await page.goto(pathToFileURL(file).href);
  await page.screenshot({ path: path.join(out, `${name}-top.png`) });
  await page.screenshot({ path: path.join(out, `${name}.png`), fullPage: true });
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (over > 0) fault(`${over} pixels wider than the window`);
  const charts = await page.evaluate(() => document.querySelectorAll("figure").length);
  const reached = await tab(page, fault);
  const hover = await pointer(page, fault);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  for (const v of violations) fault(`axe: ${v.id}: ${v.help}: ${v.nodes.map((n) => n.target).slice(0, 3).join(", ")}`);
  await page.close();
  return { page: name, bytes: 0, requests, console: messages, over, charts, sliders: reached.sliders, stops: reached.stops, hover, axe: violations.length };
}

// tab goes through the page with the keyboard alone and moves every slider to its end and back.
async function tab(page, fault) {
  await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
  let sliders = 0, stops = 0;
  for (;;) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      if (e === document.body || e.dataset.seen) return null;
      e.dataset.seen = "yes";
      return { slider: e.type === "range", outline: getComputedStyle(e).outlineStyle !== "none", what: e.tagName + " " + (e.getAttribute("aria-label") ?? e.textContent).slice(0, 40) };
    });
    if (at === null) break;
    stops++;
    if (!at.outline) fault(`nothing shows that ${at.what} has the focus`);
    if (!at.slider) continue;
    sliders++;
    for (const key of ["ArrowRight", "End", "Home"]) {
      await page.keyboard.press(key);
      const said = await page.evaluate(() => [document.activeElement.getAttribute("aria-valuetext"), document.activeElement.closest("figure").querySelector("output").textContent]);
      if (!said[0] || said[0] !== said[1]) fault(`after ${key} the slider says ${said[0]} and the page ${said[1]}`);
    }
  }
  const want = await page.evaluate(() => document.querySelectorAll("input[type=range]:not([disabled])").length);
  if (sliders !== want) fault(`Tab reaches ${sliders} sliders of ${want}`);
  return { sliders, stops };
}

// pointer hovers over the middle of every chart and counts those that tell something.
async function pointer(page, fault) {
  let told = 0;
  for (const figure of await page.$$("figure")) {
    if (await figure.$eval("input", (e) => e.disabled)) continue;
    await (await figure.$(".plot")).hover();
    const text = await figure.$eval("output", (e) => e.textContent);
    if (text) told++;
    else fault(`hovering over ${await figure.$eval("strong", (e) => e.textContent)} tells nothing`);
  }
  return told;
}

// print makes the PDF, and a picture of what is printed, with the page's own policy on.
async function print(file, name) {
  const page = await browser.newPage();
  page.on("console", (m) => faults.push(`${name}, printed: console: ${m.text()}`));
  await page.goto(pathToFileURL(file).href);
  await page.pdf({ path: path.join(out, `${name}.pdf`), format: "A4" });
  await page.emulateMediaType("print");
  await page.setViewport({ width: 794, height: 1123 });
  await page.screenshot({ path: path.join(out, `${name}-print.png`), fullPage: true });
  await page.close();
}
