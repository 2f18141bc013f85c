// Uses the Inspector's page as a person would: connects, lists the tools, runs allocate_mesh.
// node page.mjs '{"modules": DIR, "chromium": PATH, "url": URL, "name": MESH_NAME, "screenshot": PATH}'
// Prints {"tools": [names], "result": TEXT}; where it is stuck, the screenshot shows where.
import { createRequire } from "node:module";

const asked = JSON.parse(process.argv[2]);
const { chromium } = createRequire(`${asked.modules}/`)("playwright-core");

const unsandboxed = process.getuid() === 0 ? ["--no-sandbox"] : []; // Chromium has no sandbox for root
const browser = await chromium.launch({ executablePath: asked.chromium, args: unsandboxed });
const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
page.setDefaultTimeout(60_000);
try {
  await page.goto(asked.url);
  await page.getByRole("switch", { name: "Connect or disconnect" }).click({ force: true }); // its track is what is seen
  await page.getByText("Connected", { exact: true }).waitFor();

  await page.getByRole("banner").getByText("Tools", { exact: true }).click();
  await page.getByRole("heading", { name: /^Tools \(\d+\)$/ }).waitFor();
  const listed = page.getByRole("button").filter({ has: page.getByRole("paragraph") });
  await listed.filter({ hasText: /^allocate_mesh$/ }).click();
  const tools = await listed.allInnerTexts();

  await page.getByRole("textbox", { name: "name", exact: true }).fill(asked.name);
  await page.getByRole("button", { name: "Execute Tool" }).click();
  await page.getByRole("heading", { name: "Results" }).waitFor();
  const answer = page.getByText(new RegExp(`mesh-${asked.name}-\\w+: `)).first();
  await answer.waitFor();
  await page.getByText("Structured Output").waitFor();
  console.log(JSON.stringify({ tools, result: await answer.innerText() }));
} finally {
  await page.screenshot({ path: asked.screenshot });
  await browser.close();
}
