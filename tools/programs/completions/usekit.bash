# The first word is one of what usekit lists; the others are completed as the tool's own.
_usekit() {
    if [ "$COMP_CWORD" -eq 1 ]; then
        local tools
        tools=$("$1" 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$tools" -- "$2")
    elif declare -F _command_offset >/dev/null; then
        _command_offset 1
    fi
}
complete -F _usekit usekit
