// Evaluates expressions with JSONata: reads a JSON array of {expression, bindings}, prints a JSON array of answers.
// Arguments: the package's folder, and the value of $random.
const {createHash} = require("node:crypto");
const {readFileSync} = require("node:fs");
const [folder, random] = process.argv.slice(2);
const jsonata = require(folder);

async function answer({expression, bindings}) {
  try {
    const compiled = jsonata(expression);
    // Functions of Step Functions (guide, "Transforming data with JSONata").
    compiled.registerFunction("parse", JSON.parse);
    compiled.registerFunction("hash", (text, algorithm) => createHash(algorithm.replace("-", "")).update(text).digest("hex"));
    compiled.registerFunction("random", () => Number(random));
    const value = await compiled.evaluate(undefined, bindings);
    return value === undefined ? {error: "no value"} : {value};
  } catch (error) {
    return {error: `${error.code ?? ""} ${error.message}`.trim()};
  }
}

const questions = JSON.parse(readFileSync(0, "utf8"));
Promise.all(questions.map(answer)).then((answers) => process.stdout.write(JSON.stringify(answers)));
