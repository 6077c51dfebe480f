# shellcheck shell=bash
# What build.sh says: steps on stdout, problems on stderr, the first error of a failed step's log.

problems=()

say() { echo "build.sh: $*"; }
note() { echo "build.sh: note: $*" >&2; }
problem() { problems+=("$*"); }

stop_if_problems() {
  [ ${#problems[@]} -eq 0 ] && return
  local text
  for text in "${problems[@]}"; do echo "build.sh: $text" >&2; done
  if [ ${#problems[@]} -eq 1 ]; then
    echo "build.sh: 1 problem; nothing was built." >&2
  else
    echo "build.sh: ${#problems[@]} problems; nothing was built." >&2
  fi
  exit 3
}

# Errors as compilers, linkers, CMake, CANN's tools and Python write them; not -Werror, nor a file
# that has error in its name. make's own lines only repeat that something before them failed.
error_pattern='(^|[[:space:]:])(fatal )?error( [A-Z]*[0-9]+)?: |^CMake Error|undefined reference to|\[ERROR\]|^[A-Za-z_.]*(Error|Exception): |: command not found$|No space left on device|Killed signal terminated program|^ld: cannot find|cannot find -l'
last_resort_pattern='^(g|n)?make.*\*\*\* |^FAILED: |^ninja: error|Segmentation fault|Permission denied'

# Prints "line number:text" of a log's first error, or nothing.
first_error() {
  local found
  found=$(grep -n -m1 -E "$error_pattern" "$1")
  [ -n "$found" ] || found=$(grep -n -m1 -E "$last_resort_pattern" "$1")
  echo "$found"
}

explain_error() {
  case $1 in
    *"Killed signal terminated program"*) echo "The compiler ran out of memory: set MAX_JOBS to less than $jobs." ;;
    *"No space left on device"*) echo "The disk is full." ;;
    *"find_package(ASC"* | *"Could not find a package configuration file provided by \"ASC\""*)
      echo "The toolkit has no CMake package ASC: it comes with CANN 9.x." ;;
  esac
}

fail_step() { # step, log
  local found explanation
  found=$(first_error "$2")
  {
    echo "build.sh: $1 failed. The log is $2; its first error:"
    if [ -n "$found" ]; then
      sed -n "${found%%:*},+3p" "$2" | sed 's/^/  /'
    else
      echo "  (no line looks like an error; its last ones are)"
      tail -n 5 "$2" | sed 's/^/  /'
    fi
    explanation=$(explain_error "$(sed -n "${found%%:*},+3p" "$2" 2>/dev/null)")
    [ -z "$explanation" ] || echo "build.sh: $explanation"
  } >&2
  exit 1
}

# Runs a command with its output in a log; on failure shows the first error there and ends.
step() { # name, title, command...
  local log=$build_dir/logs/$1.log title=$2
  shift 2
  say "$title ..."
  if ! { printf '+ '; printf '%q ' "$@"; echo; "$@"; } >"$log" 2>&1; then fail_step "$title" "$log"; fi
}
