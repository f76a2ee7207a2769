# cmake -P non_temporal.cmake <kernel.s>: makes the kernel's stores of whole vectors go past the caches, which Halide 21
# cannot emit. What goes to the stack stays, and so do masked stores. VCVTPS2PH is taken apart into a conversion, whose
# operand nothing reads again, and a store. The fence orders the kernel's stores before whatever its caller does next,
# such as telling another thread.
set(path ${CMAKE_ARGV3})
file(READ ${path} assembly)
string(REGEX REPLACE "\\((%r[sb]p)" "{\\1" text "${assembly}")  # keeps the stack out of the next pattern
string(REGEX REPLACE "\tvmov(up[sd]|ap[sd]|dq[ua][0-9]*)\t(%[yz]mm[0-9]+, [^\n{]*\\))([ \t]*[\n#])" "\tvmovntps\t\\2\\3"
    text "${text}")
string(REGEX REPLACE "\tvcvtps2ph\t([^,\n]*), %ymm([0-9]+), ([-0-9]*\\([^\n]*\\))([ \t]*[\n#])"
    "\tvcvtps2ph\t\\1, %ymm\\2, %xmm\\2\n\tvmovntps\t%xmm\\2, \\3\\4" text "${text}")
string(REGEX REPLACE "{(%r[sb]p)" "(\\1" text "${text}")
if(text STREQUAL assembly)
    message(FATAL_ERROR "${path} stores no whole vectors")
endif()
string(REPLACE "\tretq" "\tsfence\n\tretq" text "${text}")
file(WRITE ${path} "${text}")
