// speedscope.js PACKAGE FILE: what speedscope's own importer finds in FILE, as JSON.
//
// The package has its importer inside the page's script only. The script runs here without a page: its importer is made
// reachable behind the definition, and what follows fails for want of a browser, which is of no interest.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const release = path.join(process.argv[2], 'dist/release');
const name = fs.readdirSync(release).find((file) => /^speedscope-.*\.js$/.test(file));
const importer = /async function (\w+)\(\w+,\w+\)\{return\(await \w+\)\.importProfileGroupFromBase64\(\w+,\w+\)\}/;
const script = fs.readFileSync(path.join(release, name), 'utf8');
if (!importer.test(script)) throw new Error(`${name} has no importer where it is expected`);

const page = { console, atob, btoa, TextDecoder, TextEncoder, URL, setTimeout, clearTimeout, Uint8Array, ArrayBuffer };
page.window = page.self = page;
// As much of a browser as it looks at before it begins to draw.
page.location = { hash: '', protocol: 'file:', href: 'file:///' };
page.localStorage = {};
vm.createContext(page);
try {
    vm.runInContext(script.replace(importer, '$&;globalThis.importer=$1;'), page);
} catch (error) {
    if (!page.importer) throw new Error(String(error).slice(0, 500));
}

const file = process.argv[3];
page.importer(path.basename(file), fs.readFileSync(file).toString('base64')).then((group) => {
    if (!group) throw new Error('speedscope does not know this format');
    const profiles = group.profiles.map((profile) => {
        const frames = {};
        profile.forEachFrame((frame) => {
            const known = frames[frame.name] || [0, 0];
            frames[frame.name] = [known[0] + frame.getSelfWeight(), known[1] + frame.getTotalWeight()];
        });
        return { name: profile.getName(), unit: profile.getWeightUnit(), total: profile.getTotalWeight(), frames };
    });
    console.log(JSON.stringify(profiles));
}).catch((error) => {
    console.error(String(error).slice(0, 500));
    process.exitCode = 1;
});
