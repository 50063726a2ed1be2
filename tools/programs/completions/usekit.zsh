#compdef usekit
# The first word is one of what usekit lists; the others are completed as the tool's own.
if ((CURRENT == 2)); then
    local -a tools
    tools=(${(f)"$($words[1] 2>/dev/null | sed -n 's/^  \([a-z]*\) */\1:/p')"})
    _describe tool tools
else
    shift words
    ((CURRENT--))
    _normal
fi
