//! Which other language a text is in that is no TypeScript.

/// The language, if the text shows it beyond doubt. To be asked only of texts that do not parse.
pub(crate) fn other_language(text: &str) -> Option<&'static str> {
    if text.trim_start().starts_with("#!") && text.lines().next().is_some_and(|line| line.ends_with("sh")) {
        return Some("a shell script");
    }
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    if lines().any(is_python) {
        Some("Python")
    } else if lines().all(is_shell) && lines().next().is_some() {
        Some("a shell script")
    } else {
        None
    }
}

/// Whether only Python has such a line.
fn is_python(line: &str) -> bool {
    let code = line.split(" #").next().unwrap_or(line).trim_end();
    let opens = |word: &str| code.strip_prefix(word).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with(':'));
    let is_block = code.ends_with(':')
        && !code.contains('{')
        && ["if", "elif", "else", "for", "while", "try", "except", "with", "finally"].into_iter().any(opens);
    let is_definition =
        code.ends_with(':') && ["def ", "async def ", "class "].iter().any(|start| code.starts_with(start));
    let is_import = code.starts_with("from ") && code.contains(" import ")
        || code.strip_prefix("import ").is_some_and(|module| {
            module.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '.' | ',' | ' '))
        });
    is_block || is_definition || is_import || code.contains("print(f\"") || code.contains("print(f'")
}

fn is_shell(line: &str) -> bool {
    const COMMANDS: [&str; 16] = [
        "bash", "cat", "cd", "chmod", "cp", "curl", "echo", "find", "grep", "ls", "mkdir", "node", "npm", "pip",
        "python", "sudo",
    ];
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let word = line.split_whitespace().next().unwrap_or_default();
    line.starts_with('#') || COMMANDS.contains(&word.trim_end_matches('3'))
}

#[cfg(test)]
mod tests {
    use super::other_language;

    #[test]
    fn languages_are_told_apart() {
        for python in [
            "import json\nresult = web_search(query='a')\nprint(result)",
            "def main():\n    return 1",
            "for order in orders:\n    print(order)",
            "from tools import web_search",
            "async def main():\n  pass",
        ] {
            assert_eq!(other_language(python), Some("Python"), "{python}");
        }
        for shell in
            ["curl -s https://x.example | grep a", "#!/bin/bash\nset -e", "$ ls -la\n$ cat a.txt", "pip3 install x"]
        {
            assert_eq!(other_language(shell), Some("a shell script"), "{shell}");
        }
        for typescript in
            ["const x = {", "for (const a of b) {\n  default:\n}", "import { a } from 'b'\nreturn (", "label: for (;;"]
        {
            assert_eq!(other_language(typescript), None, "{typescript}");
        }
    }
}
