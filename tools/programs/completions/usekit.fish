# The first word is one of what usekit lists; the others are completed as the tool's own.
complete -c usekit -n __fish_use_subcommand -f -a "(usekit 2>/dev/null | string match -rg '^  ([a-z]+ +.*)' | string replace -r ' +' \t)"
complete -c usekit -n 'not __fish_use_subcommand' -f -a '(__fish_complete_subcommand)'
