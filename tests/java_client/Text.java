import org.apache.fluss.row.InternalArray;
import org.apache.fluss.row.InternalMap;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.types.ArrayType;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.MapType;
import org.apache.fluss.types.RowType;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Values as text that is the same in each run. */
final class Text {
    static String of(Object value) {
        if (value instanceof Map) {
            Map<String, String> sorted = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, held) -> sorted.put(of(key), of(held)));
            return sorted.toString();
        }
        if (value instanceof Collection) {
            List<String> texts = new ArrayList<>();
            ((Collection<?>) value).forEach(item -> texts.add(of(item)));
            return texts.toString();
        }
        if (value instanceof byte[]) {
            StringBuilder hex = new StringBuilder("0x");
            for (byte each : (byte[]) value) {
                hex.append(String.format("%02x", each));
            }
            return hex.toString();
        }
        if (value instanceof Object[]) {
            return of(Arrays.asList((Object[]) value));
        }
        return String.valueOf(value);
    }

    /** A row's fields, read by the types of its columns. */
    static String row(InternalRow row, RowType type) {
        if (row == null) {
            return "null";
        }
        List<String> fields = new ArrayList<>();
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataType of = type.getTypeAt(i);
            fields.add(field(InternalRow.createFieldGetter(of, i).getFieldOrNull(row), of));
        }
        return "(" + String.join(", ", fields) + ")";
    }

    static String rows(Collection<? extends InternalRow> rows, RowType type) {
        List<String> texts = new ArrayList<>();
        rows.forEach(row -> texts.add(row(row, type)));
        return texts.toString();
    }

    private static String field(Object value, DataType type) {
        if (value instanceof InternalRow) {
            return row((InternalRow) value, (RowType) type);
        }
        if (value instanceof InternalArray) {
            return elements((InternalArray) value, ((ArrayType) type).getElementType());
        }
        if (value instanceof InternalMap) {
            InternalMap map = (InternalMap) value;
            MapType of = (MapType) type;
            return elements(map.keyArray(), of.getKeyType())
                    + "->"
                    + elements(map.valueArray(), of.getValueType());
        }
        return of(value);
    }

    private static String elements(InternalArray array, DataType type) {
        List<String> texts = new ArrayList<>();
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type);
        for (int i = 0; i < array.size(); i++) {
            texts.add(field(getter.getElementOrNull(array, i), type));
        }
        return texts.toString();
    }

    /** A message without the ids, addresses and times of one run. */
    static String masked(String message) {
        return message.replaceAll("x{201}", "LONG")
                .replaceAll("127\\.0\\.0\\.1:\\d+", "ADDRESS")
                .replaceAll("/[^ '\",]*/(warehouse|remote|data|kv|log)\\b[^ '\",]*", "FILE")
                .replaceAll("\\b1[67]\\d{11}\\b", "TIME")
                .replaceAll("(?i)((table|partition|snapshot)[ _]?id[ =:]*)\\d+", "$1ID")
                .replaceAll("(tableId|partitionId)=\\d+", "$1=ID");
    }
}
