# The constants of constants.py, as C constants: the compiled modules compare with numbers, not
# with Python objects. The two files must have the same values.

cdef enum:
    HEADER_SIZE = 61
    LENGTH_END = 12
    CRC_END = 21
    COMPRESSION_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    CONTROL = 0x20
    RECORD_SIZE_MIN = 7
    RECORD_OVERHEAD_MAX = 26
    HEADERS_MAX = 0xFFFF
    INT32_MAX = 0x7FFFFFFF
    NO_TIMESTAMP = -1

cdef enum:
    BAD_COUNT = 1
    BAD_LENGTH = 2
    BAD_TIMESTAMP = 3
    BAD_OFFSET = 4
    BAD_KEY = 5
    BAD_VALUE = 6
    BAD_HEADERS = 7
    BAD_HEADER_KEY = 8
    BAD_HEADER_VALUE = 9
    BAD_END = 10
    BAD_TAIL = 11

cdef enum:
    JSON_STRING = 1
    JSON_BOOLEAN = 2
    JSON_INT = 3
    JSON_LONG = 4
    JSON_DOUBLE = 5
    JSON_TIMESTAMP = 6
    JSON_DATE = 7
    JSON_OTHER = -2
    JSON_NUMBER_SIZE_MAX = 63
    JSON_EXPONENT_MAX = 200
